//! Which programs hang where.
//!
//! A program is named after its tracepoint, except where the arguments of a tracepoint changed: then there is one program for
//! each form, and the kernel's verifier, which knows the types of its own arguments, takes only what fits.

use std::io::{self, ErrorKind};

use aya::Ebpf;
use aya::programs::Program;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::util::online_cpus;

use super::{Config, Pages};
use crate::load::{Kernel, StartError};

/// What tracing is nothing without, sched_switch apart. Interrupts first: a wake-up must find their depth counted.
const SCHEDULER: [&str; 12] = [
    "irq_handler_entry",
    "irq_handler_exit",
    "softirq_entry",
    "softirq_exit",
    "hrtimer_expire_entry",
    "hrtimer_expire_exit",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
];
/// Not on every architecture and in every kernel.
const RARE_INTERRUPTS: [&str; 6] = [
    "call_function_entry",
    "call_function_exit",
    "call_function_single_entry",
    "call_function_single_exit",
    "irq_work_entry",
    "irq_work_exit",
];

/// The clock whose ticks tell where threads are in their code: a software event, since virtual machines have no counters.
pub(super) const CLOCK: &str = "cpu-clock";
const CLOCK_PROGRAM: &str = "sample_stack";

/// What is attached, and what this kernel does not have.
#[derive(Debug, Default)]
pub(super) struct Points {
    programs: Vec<&'static str>,
    pub(super) attached: Vec<&'static str>,
    pub(super) missing: Vec<&'static str>,
}

impl Points {
    /// Loads and attaches what `config` asks for.
    pub(super) fn attach(kernel: &Kernel, ebpf: &mut Ebpf, config: &Config) -> Result<Self, StartError> {
        let mut points = Self::default();
        for name in RARE_INTERRUPTS {
            points.optional(kernel, ebpf, name, &[name]);
        }
        if config.io {
            points.block(kernel, ebpf);
            points.network(kernel, ebpf);
        }
        points.optional(kernel, ebpf, "mark_victim", &["mark_victim", "mark_victim_tid"]);
        if config.pages != Pages::Off {
            points.one_of(kernel, ebpf, "mm_page_alloc", &["mm_page_alloc"])?;
        }
        for name in SCHEDULER {
            points.one_of(kernel, ebpf, name, &[name])?;
        }
        points.one_of(kernel, ebpf, "sched_switch", &["sched_switch", "sched_switch_untold"])?;
        if config.stacks_hz > 0 {
            match tick(ebpf, config.stacks_hz) {
                Ok(()) => {
                    points.programs.push(CLOCK_PROGRAM);
                    points.attached.push(CLOCK);
                }
                Err(_) => points.missing.push(CLOCK),
            }
        }
        Ok(points)
    }

    /// Requests are followed from where the kernel tells of their making (6.5), or else from the first sight of them.
    fn block(&mut self, kernel: &Kernel, ebpf: &mut Ebpf) {
        self.optional(kernel, ebpf, "block_rq_complete", &["block_rq_complete"]);
        self.optional(kernel, ebpf, "block_rq_merge", &["block_rq_merge"]);
        if !self.optional(kernel, ebpf, "block_io_start", &["block_io_start"]) {
            self.optional(kernel, ebpf, "block_rq_insert", &["block_rq_insert"]);
            self.optional(kernel, ebpf, "block_rq_issue", &["block_rq_issue"]);
        }
    }

    /// Who a connection belongs to is told by tracepoints (6.4), or else by the function that they are about.
    fn network(&mut self, kernel: &Kernel, ebpf: &mut Ebpf) {
        self.optional(kernel, ebpf, "tcp_retransmit_skb", &["tcp_retransmit_skb_err", "tcp_retransmit_skb"]);
        self.optional(kernel, ebpf, "inet_sock_set_state", &["inet_sock_set_state"]);
        if self.optional(kernel, ebpf, "sock_send_length", &["sock_send_length"]) {
            self.optional(kernel, ebpf, "sock_recv_length", &["sock_recv_length"]);
        } else {
            self.optional(kernel, ebpf, "tcp_sendmsg_locked", &["tcp_sendmsg_locked"]);
        }
    }

    /// Attaches the first of `programs` that this kernel takes at `name`; whether there is one.
    fn optional(&mut self, kernel: &Kernel, ebpf: &mut Ebpf, name: &'static str, programs: &[&'static str]) -> bool {
        let taken = self.one_of(kernel, ebpf, name, programs).is_ok();
        if !taken {
            self.missing.push(name);
        }
        taken
    }

    /// The same, where there must be one.
    fn one_of(
        &mut self,
        kernel: &Kernel,
        ebpf: &mut Ebpf,
        name: &'static str,
        programs: &[&'static str],
    ) -> Result<(), StartError> {
        let mut result = Err(StartError::refused(format!("tracepoint {name}"), &io::Error::from(ErrorKind::NotFound)));
        for program in programs {
            result = attach(kernel, ebpf, program, name);
            if result.is_ok() {
                self.programs.push(program);
                self.attached.push(name);
                break;
            }
        }
        result
    }

    /// Detaches everything. The last to be attached goes first: an interval must not end when the wake-up in it is seen no
    /// more.
    pub(super) fn detach(&mut self, ebpf: &mut Ebpf) {
        for name in std::mem::take(&mut self.programs).into_iter().rev() {
            // Unloading drops the links; an error would mean that there is nothing to detach.
            let _ = match ebpf.program_mut(name) {
                Some(Program::BtfTracePoint(program)) => program.unload(),
                Some(Program::FEntry(program)) => program.unload(),
                Some(Program::PerfEvent(program)) => program.unload(),
                _ => Ok(()),
            };
        }
    }
}

/// Has the program run `hz` times a second on each CPU.
fn tick(ebpf: &mut Ebpf, hz: u32) -> io::Result<()> {
    let Some(Program::PerfEvent(program)) = ebpf.program_mut(CLOCK_PROGRAM) else {
        return Err(ErrorKind::NotFound.into());
    };
    program.load().map_err(io::Error::other)?;
    let period_ns = SamplePolicy::Period(1_000_000_000 / u64::from(hz.max(1)));
    for cpu in online_cpus().map_err(|(_, error)| error)? {
        let (clock, scope) =
            (PerfEventConfig::Software(SoftwareEvent::CpuClock), PerfEventScope::AllProcessesOneCpu { cpu });
        program.attach(clock, scope, period_ns, false).map_err(io::Error::other)?;
    }
    Ok(())
}

fn attach(kernel: &Kernel, ebpf: &mut Ebpf, program: &str, at: &str) -> Result<(), StartError> {
    let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("tracepoint {at}"), e);
    match ebpf.program_mut(program) {
        Some(Program::BtfTracePoint(program)) => {
            program.load(at, kernel.btf()).and_then(|()| program.attach().map(|_| ()))
        }
        Some(Program::FEntry(program)) => program.load(at, kernel.btf()).and_then(|()| program.attach().map(|_| ())),
        _ => return Err(refused(&io::Error::from(ErrorKind::NotFound))),
    }
    .map_err(|e| refused(&e))
}
