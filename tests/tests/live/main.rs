//! The tools on live probes, as root: one module a topic, one test at a time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking, and may talk")]

mod calls;
mod command;
mod counts;
mod crowd;
mod ctrl_c;
mod errors;
mod every_function;
mod flood;
mod invoker;
mod late_library;
mod midst;
mod namespaces;
mod off_cpu;
mod outputs;
mod pipes;
mod places;
mod preempted;
mod privileges;
mod real_cudart;
mod replaced;
mod seccomp;
mod since;
mod starved;
mod stuck;
mod tiers;
mod waits;
