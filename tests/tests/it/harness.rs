//! The harness itself, where a fault in it would make other tests pass for nothing.

use std::process::Command;
use std::time::{Duration, Instant};

use ingero_tests::pty::Terminal;
use ingero_tests::{Background, Output, Records};

/// Waits until the screen shows it of the first and of the second process.
#[track_caller]
fn both_say(terminal: &Terminal, word: &str) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !["first", "second"].iter().all(|which| terminal.screen().contains(&format!("{which} {word}"))) {
        assert!(Instant::now() < patience, "{}", terminal.screen());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ctrl_c_reaches_every_process_of_a_pipeline() {
    let script =
        "trap 'echo $0 interrupted >/dev/tty; exit' INT; echo $0 ready >/dev/tty; while :; do sleep 0.02; done";
    // bash does not wait for a process substitution, and the terminal hangs up with bash: it stays until both have spoken.
    let mut terminal = Terminal::bash(&format!(
        "trap : INT; sh -c \"{0}\" first | cat <(sh -c \"{0}\" second) -; trap - INT; exec tac",
        script.replace('$', "\\$")
    ));
    both_say(&terminal, "ready");
    assert!(!terminal.pids("sh").is_empty());
    terminal.ctrl_c();
    both_say(&terminal, "interrupted");
    terminal.wait_for("tac");
    terminal.ctrl_c();
    terminal.wait();
}

#[test]
fn a_stalled_program_loses_nothing_once_it_is_read() {
    // Six times what a pipe holds.
    let mut numbers = Background::start_stalled(Command::new("seq").args(["-f", "{\"n\":%.0f}", "40000"]));
    std::thread::sleep(Duration::from_millis(50));
    numbers.read_on();
    let out = numbers.wait().exits(0);
    let records = out.records();
    assert_eq!((records.0.len(), &records.0[39_999]["n"]), (40_000, &40_000.into()));
}

#[test]
fn a_failure_shows_command_status_and_both_outputs() {
    let out = Output::of(Command::new("sh").args(["-c", "echo to stdout; echo to stderr >&2; exit 3"]));
    let shown = out.to_string();
    for part in ["exit 3", "exit status: 3", "to stdout", "to stderr"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(std::panic::catch_unwind(move || out.exits(0)).is_err());
}

#[test]
fn books_that_do_not_balance_are_seen() {
    let records = |seen: u64, lost: u64, told: u64| {
        let text = format!(
            "{{\"src\":\"ingero\",\"op\":\"lost\",\"count\":{told}}}\n\
             {{\"src\":\"ingero\",\"op\":\"end\",\"seen\":{seen},\"written\":90,\"lost\":{{\"ring_full\":{lost}}}}}\n"
        );
        Records::parse(text.as_bytes()).unwrap()
    };
    records(100, 10, 10).balance();
    for wrong in [records(101, 10, 10), records(100, 10, 9), records(90, 0, 1)] {
        assert!(std::panic::catch_unwind(move || wrong.balance()).is_err());
    }
    assert!(Records::parse(&b"[]\n"[..]).is_err());
    assert!(Records::parse(&b"{\"a\":1}\n{\"a\"\n"[..]).is_err());
}
