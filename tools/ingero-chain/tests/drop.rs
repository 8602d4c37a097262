//! A rate of calls that falls: what took the place of the missing ones, in pieces too short for a gap?

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise, in its helpers too")]

mod support;

use serde_json::{Value, json};
use support::{chain, text};

const US: u64 = 1000;
const SECOND_US: u64 = 1_000_000;

/// The drop in the calls of a process that launches every 500 us, on the CPU in between, for three seconds, and after that
/// every 2 ms, where each time it is preempted for 1.2 ms by another one. `lost` puts a loss of scheduler records there.
fn report(lost: bool) -> Value {
    let mut lines = vec![];
    for stream in ["cuda", "sched"] {
        lines.push(
            json!({"src":"ingero","op":"watch","mono_ns":1000,"pid":100,"tid":100,"comm":"train","stream":stream}),
        );
    }
    let mut at_us = 1000;
    while at_us < 8 * SECOND_US {
        lines.push(json!({"src":"cudart","op":"cudaLaunchKernel","mono_ns":at_us * US,"dur_ns":5 * US,"pid":100,"tid":100,"comm":"train","ret":0,"depth":0}));
        if at_us < 3 * SECOND_US {
            at_us += 500;
            continue;
        }
        let rival = json!({"pid":200,"tid":200,"comm":"stress"});
        lines.push(json!({"src":"sched","op":"sched_switch","mono_ns":(at_us + 100) * US,"dur_ns":1200 * US,"pid":100,"tid":100,
            "comm":"train","state":"R","runq_ns":1200 * US,"cpu":0,"by":rival,"prev":rival}));
        at_us += 2000;
    }
    if lost {
        lines.push(json!({"src":"ingero","op":"lost","mono_ns":3 * SECOND_US * US,"dur_ns":5 * SECOND_US * US,"stream":"sched","count":9,"why":"ring_full"}));
        lines.sort_by_key(|line| line["mono_ns"].as_u64());
    }
    lines.push(json!({"src":"ingero","op":"end","mono_ns":at_us * US}));
    let stream: String = lines.iter().map(|record| format!("{record}\n")).collect();
    let out = chain(&[], &stream);
    let mut chains = text(&out.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    chains.find(|chain| chain["op"] == "drop").unwrap()
}

/// The share of a cause.
fn share(chain: &Value, cause: &str) -> f64 {
    let causes = chain["causes"].as_array().unwrap();
    causes.iter().find(|line| line["cause"] == cause).map_or(0.0, |line| line["share"].as_f64().unwrap())
}

#[test]
fn what_came_in_between_is_the_cause_and_what_is_usual_is_not() {
    let drop = report(false);
    assert_eq!(drop["severity"], "high", "{drop}");
    // Of each 2 ms, 1.5 are lost: 1.2 of waiting and 0.3 on the CPU, where 0.495 are the usual.
    assert!((share(&drop, "cpu_wait") - 0.8).abs() < 0.02, "{drop}");
    assert!((share(&drop, "host_cpu") - 0.2).abs() < 0.02, "{drop}");
    assert_eq!(drop["causes"][0]["who"][0]["comm"], "stress", "{drop}");
}

#[test]
fn a_loss_leaves_it_unexplained() {
    let drop = report(true);
    assert!(share(&drop, "host_cpu") < 0.02, "{drop}");
    let (lost_ns, unexplained_ns) = (drop["lost_ns"].as_u64().unwrap(), drop["unexplained_ns"].as_u64().unwrap());
    assert!(unexplained_ns >= lost_ns / 6, "{drop}");
}
