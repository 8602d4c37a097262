//! What every tool of the ingero suite shares, each thing in one place: the record contract and its
//! NDJSON form, clocks, command-line conventions, exit codes, signals, the discovery of processes
//! and libraries, and the model of the scheduler.

pub mod cli;
pub mod clock;
pub mod cuda_api;
pub mod discover;
pub mod exit;
pub mod fifo;
pub mod host;
pub mod input;
pub mod invoker;
pub mod man;
pub mod ndjson;
pub mod output;
pub mod privileges;
pub mod record;
pub mod signal;
pub mod stream;
pub mod text;
