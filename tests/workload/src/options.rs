//! What the workload driver can be asked for.

use std::path::PathBuf;
use std::time::Duration;

use bpaf::{Bpaf, OptionParser, Parser, construct, long, short};
use ingero_common::cli;
use ingero_workload::plan::{Loader, Plan, Seccomp, Step};
use ingero_workload::stub_dir;

/// One subcommand with its options.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Steps as given.
    Calls(Common, Calls),
    /// Steps, each time after an item from a forked worker.
    Loader(Common, Box<Feed>),
    /// Calls on a CPU that somebody else wants too.
    Preempt(Common, Preempt),
    /// No calls: only burn a CPU.
    Spin(Common, Spin),
}

/// Options of all subcommands.
#[derive(Clone, Debug, Bpaf)]
pub(crate) struct Common {
    /// Library to open: a path, a soname, or 12 or 13 for the stub's own runtime
    #[bpaf(long("library"), argument("LIB"), fallback("12".into()), display_fallback)]
    library: String,
    /// The runtime is part of the executable, as nvcc links it by default
    #[bpaf(long("static"))]
    static_runtime: bool,
    /// Name of the process (comm)
    #[bpaf(long("name"), argument("NAME"), optional)]
    name: Option<String>,
    /// Sleep so long before the library is opened
    #[bpaf(external(wait))]
    wait: Duration,
    /// Read a byte from stdin before the first call
    #[bpaf(long("gate"))]
    gate: bool,
    /// Read a byte from stdin after the last call, before the process ends
    #[bpaf(long("hold"))]
    hold: bool,
    /// CPUs to run on, for instance 0,2
    #[bpaf(external(cpus))]
    cpus: Vec<u32>,
    /// Times through the steps; with a loader, items
    #[bpaf(short('n'), long("loops"), argument("N"), fallback(1), display_fallback)]
    loops: u64,
    /// Go through the steps for so long instead
    #[bpaf(external(lasting))]
    lasting: Duration,
    /// A step, in this order: NAME[*COUNT][,spin=2ms][,sleep=2ms][,bytes=4k][,dir=h2d][,ret=2][,stream=7][,flat]; NAME host
    /// is no call but the host's own work
    #[bpaf(external(steps))]
    steps: Vec<Step>,
}

/// Options of `calls`.
#[derive(Clone, Debug, Bpaf)]
pub(crate) struct Calls {
    /// Threads at a time; 1 is the main thread itself
    #[bpaf(long("threads"), argument("N"), fallback(1), display_fallback)]
    threads: u64,
    /// Generations of threads, one after the other
    #[bpaf(long("generations"), argument("N"), fallback(1), display_fallback)]
    generations: u64,
    /// Children forked after the library is open, which do the same
    #[bpaf(long("forks"), argument("N"), fallback(0), display_fallback)]
    forks: u64,
    /// Install a strict seccomp filter: early, before the gate, or late, after it
    #[bpaf(external(seccomp))]
    seccomp: Seccomp,
}

/// Options of `loader`.
#[derive(Clone, Debug, Bpaf)]
pub(crate) struct Feed {
    /// Forked workers
    #[bpaf(long("workers"), argument("N"), fallback(4), display_fallback)]
    workers: u64,
    /// CPUs for the workers
    #[bpaf(external(worker_cpus))]
    worker_cpus: Vec<u32>,
    /// CPU time that one item costs its worker
    #[bpaf(external(item_cpu))]
    item_cpu: Duration,
    /// Time that a worker sleeps for one item
    #[bpaf(external(item_sleep))]
    item_sleep: Duration,
    /// Items under way for each worker
    #[bpaf(long("prefetch"), argument("N"), fallback(2), display_fallback)]
    prefetch: u64,
    /// Workers hand over through a thread created with the first item
    #[bpaf(long("feeder"))]
    feeder: bool,
    /// A thread of the main process takes the items in
    #[bpaf(long("pin"))]
    pin: bool,
}

/// Options of `preempt`.
#[derive(Clone, Debug, Bpaf)]
pub(crate) struct Preempt {
    /// Name of the process that spins on the same CPUs
    #[bpaf(long("rival"), argument("NAME"), fallback("cpu_hog".into()), display_fallback)]
    rival: String,
}

/// `spin` has no options of its own.
#[derive(Clone, Debug)]
pub(crate) struct Spin;

fn duration_of(name: &'static str, help: &'static str) -> impl Parser<Duration> {
    long(name).help(help).argument::<String>("TIME").parse(|t| cli::duration(&t)).fallback(Duration::ZERO)
}

fn cpus_of(name: &'static str, help: &'static str) -> impl Parser<Vec<u32>> {
    let parse = |text: String| text.split(',').map(|cpu| cpu.parse::<u32>()).collect::<Result<Vec<_>, _>>();
    long(name).help(help).argument::<String>("CPUS").parse(parse).fallback(Vec::new())
}

fn wait() -> impl Parser<Duration> {
    duration_of("wait", "Sleep so long before the library is opened")
}

fn lasting() -> impl Parser<Duration> {
    duration_of("for", "Go through the steps for so long instead")
}

fn item_cpu() -> impl Parser<Duration> {
    duration_of("item-cpu", "CPU time that one item costs its worker")
}

fn item_sleep() -> impl Parser<Duration> {
    duration_of("item-sleep", "Time that a worker sleeps for one item")
}

fn cpus() -> impl Parser<Vec<u32>> {
    cpus_of("cpus", "CPUs to run on, for instance 0,2")
}

fn worker_cpus() -> impl Parser<Vec<u32>> {
    cpus_of("worker-cpus", "CPUs for the workers")
}

fn seccomp() -> impl Parser<Seccomp> {
    let parse = |text: String| match text.as_str() {
        "early" => Ok(Seccomp::Early),
        "late" => Ok(Seccomp::Late),
        _ => Err("is neither early nor late"),
    };
    let help = "Install a strict seccomp filter: early, before the gate, or late, after it";
    long("seccomp").help(help).argument::<String>("WHEN").parse(parse).fallback(Seccomp::None)
}

fn steps() -> impl Parser<Vec<Step>> {
    let help = "A step, in this order: NAME[*COUNT][,spin=2ms][,sleep=2ms][,bytes=4k][,dir=h2d][,ret=2][,stream=7][,flat]; \
                the NAME host is no call but the host's own work";
    short('s').long("step").help(help).argument::<String>("STEP").parse(|t| t.parse::<Step>()).many()
}

/// The command line.
pub(crate) fn task() -> OptionParser<Task> {
    let calls = {
        let (common, own) = (common(), calls());
        construct!(Task::Calls(common, own)).to_options().descr("Make the calls of the steps").command("calls")
    };
    let loader = {
        let (common, own) = (common(), feed().map(Box::new));
        construct!(Task::Loader(common, own))
            .to_options()
            .descr("Go through the steps once for each item that forked workers hand over")
            .command("loader")
    };
    let preempt = {
        let (common, own) = (common(), preempt());
        construct!(Task::Preempt(common, own))
            .to_options()
            .descr("Make the calls of the steps on a CPU that a spinning process wants too")
            .command("preempt")
    };
    let spin = {
        let (common, own) = (common(), bpaf::pure(Spin));
        construct!(Task::Spin(common, own)).to_options().descr("Burn a CPU and make no call").command("spin")
    };
    construct!([calls, loader, preempt, spin])
        .to_options()
        .descr("Makes exactly known CUDA calls through a stub library and says on stdout, in two JSON lines, who made how many")
}

impl Common {
    fn plan(&self) -> Plan {
        let library = match self.library.as_str() {
            _ if self.static_runtime => None,
            major @ ("12" | "13") => Some(stub_dir().join(format!("libcudart.so.{major}"))),
            other => Some(PathBuf::from(other)),
        };
        Plan {
            library,
            static_runtime: self.static_runtime,
            name: self.name.clone(),
            wait: self.wait,
            gate: self.gate,
            hold: self.hold,
            cpus: self.cpus.clone(),
            loops: self.loops,
            lasting: self.lasting,
            steps: self.steps.clone(),
            ..Plan::default()
        }
    }
}

impl Task {
    /// The process that competes with the calls: its name and its CPUs.
    pub(crate) fn rival(&self) -> Option<(String, Vec<u32>)> {
        match self {
            Self::Preempt(common, own) => Some((own.rival.clone(), common.cpus.clone())),
            _ => None,
        }
    }

    /// What `stub-app` is to do.
    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        let plan = match self {
            Self::Calls(common, own) => Plan {
                threads: own.threads,
                generations: own.generations,
                forks: own.forks,
                seccomp: own.seccomp,
                ..common.plan()
            },
            Self::Loader(common, own) => Plan {
                loader: Some(Loader {
                    workers: own.workers,
                    cpus: own.worker_cpus.clone(),
                    item_cpu: own.item_cpu,
                    item_sleep: own.item_sleep,
                    prefetch: own.prefetch,
                    feeder: own.feeder,
                    pin: own.pin,
                }),
                ..common.plan()
            },
            Self::Preempt(common, _) => {
                anyhow::ensure!(common.cpus.len() == 1, "preempt needs one CPU to fight for: --cpus 0");
                common.plan()
            }
            Self::Spin(common, _) => {
                anyhow::ensure!(common.steps.is_empty(), "spin makes no calls: leave --step away");
                let mut spin = Step::new("host", 1);
                spin.spin = Duration::from_millis(1);
                Plan { steps: vec![spin], ..common.plan() }
            }
        };
        anyhow::ensure!(
            !plan.steps.is_empty(),
            "nothing to do: give at least one --step, for instance --step 'cudaMalloc*100'"
        );
        Ok(plan)
    }
}
