//! Who a process is: its parent, its script, where it may run, and what it belongs to. Read once, when it is first watched.
//!
//! All of it comes from files of the process: it may say what it likes, so that texts are cut and nothing is believed beyond them.

use std::fs;

use ingero_common::discover::ProcFs;

/// Longer texts are cut.
const MAX_BYTES: usize = 256;
/// Programs whose first argument that is no option is what they really run.
const INTERPRETERS: [&[u8]; 8] = [b"python", b"pypy", b"ruby", b"perl", b"node", b"julia", b"Rscript", b"bash"];
/// Options of Python's that take the next argument.
const WITH_VALUE: [&[u8]; 3] = [b"-X", b"-W", b"--check-hash-based-pycs"];
/// Where launchers put a process's number in its job, in the order in which they are believed.
const RANKS: [&str; 4] = ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// What there is to say of a process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) ppid: Option<u32>,
    /// What an interpreter runs: a path as it was given, or a module.
    pub(crate) script: Option<Vec<u8>>,
    /// As taskset writes it: `0-3,8`.
    pub(crate) cpus_allowed: Option<String>,
    /// The first 12 digits of its id, as `docker ps` shows them.
    pub(crate) container: Option<String>,
    /// The UID of a Kubernetes pod.
    pub(crate) pod: Option<String>,
    /// The number of a Slurm job.
    pub(crate) job: Option<String>,
    pub(crate) rank: Option<u32>,
}

impl Identity {
    /// That of process `pid`, as far as it can be read.
    pub(crate) fn of(pid: u32) -> Self {
        let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let groups = String::from_utf8_lossy(&read("cgroup")).into_owned();
        Self {
            ppid: ProcFs::default().stat(pid).ok().map(|stat| stat.parent_pid).filter(|&ppid| ppid != 0),
            script: script(&read("cmdline")),
            cpus_allowed: cpus_allowed(pid),
            container: groups.split('/').find_map(container),
            pod: groups.split('/').find_map(pod),
            job: groups.split('/').find_map(|part| digits(part.trim_end().strip_prefix("job_")?)),
            rank: rank(&read("environ")),
        }
    }
}

/// The CPUs that the main thread of a process may run on.
pub(crate) fn cpus_allowed(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned()).filter(|list| list.len() <= MAX_BYTES)
}

fn script(command: &[u8]) -> Option<Vec<u8>> {
    let mut arguments = command.split(|&byte| byte == 0);
    let program = arguments.next()?.rsplit(|&byte| byte == b'/').next()?;
    if !INTERPRETERS.iter().any(|interpreter| program.starts_with(interpreter)) {
        return None;
    }
    let cut = |text: &[u8]| (!text.is_empty()).then(|| text[..text.len().min(MAX_BYTES)].to_vec());
    while let Some(argument) = arguments.next() {
        match argument {
            b"-c" | b"-e" | b"-" => return None,
            b"-m" => return arguments.next().and_then(cut),
            option if WITH_VALUE.contains(&option) => {
                arguments.next();
            }
            option if option.starts_with(b"-") => {}
            file => return cut(file),
        }
    }
    None
}

/// `docker-<id>.scope`, `cri-containerd-<id>.scope`, `libpod-<id>.scope`, or the id alone: 64 digits.
fn container(part: &str) -> Option<String> {
    let part = part.trim_end();
    let id = part.strip_suffix(".scope").unwrap_or(part).rsplit('-').next()?;
    (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id[..12].to_owned())
}

/// `pod<uid>`, or `kubepods-besteffort-pod<uid>.slice` with `_` for `-`.
fn pod(part: &str) -> Option<String> {
    let part = part.trim_end();
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let uid = part.strip_prefix("pod").or_else(|| part.split_once("-pod").map(|(_, uid)| uid))?;
    let uid = uid.replace('_', "-");
    (uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') && uid.len() <= 64)
        .then_some(uid)
}

fn digits(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.to_owned())
}

fn rank(environment: &[u8]) -> Option<u32> {
    let value = |name: &str| {
        let mut all = environment.split(|&byte| byte == 0);
        let text = all.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(text).ok()?.parse().ok()
    };
    RANKS.into_iter().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_what_an_interpreter_runs() {
        let of = |line: &str| script(line.replace(' ', "\0").as_bytes()).map(|text| String::from_utf8(text).unwrap());
        for (line, want) in [
            ("/usr/bin/python3.12 -u -X dev train.py --epochs 3", Some("train.py")),
            ("python -m torch.distributed.run train.py", Some("torch.distributed.run")),
            ("python3 -c pass train.py", None),
            ("python3", None),
            ("/opt/server --model x", None),
            ("bash /opt/run.sh", Some("/opt/run.sh")),
            ("", None),
        ] {
            assert_eq!(of(line).as_deref(), want, "{line}");
        }
        assert_eq!(of(&format!("python {}", "x".repeat(999))).unwrap().len(), MAX_BYTES);
    }

    #[test]
    fn control_groups_tell_what_a_process_belongs_to() {
        let id = "0123456789abcdef".repeat(4);
        let uid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427";
        for part in [format!("docker-{id}.scope\n"), id.clone(), format!("cri-containerd-{id}.scope")] {
            assert_eq!(container(&part).as_deref(), Some("0123456789ab"), "{part}");
        }
        assert_eq!(container("user-1000.slice"), None);
        let slice = format!("kubepods-besteffort-pod{}.slice", uid.replace('-', "_"));
        assert_eq!(
            [slice.as_str(), &format!("pod{uid}"), "podman-x.scope"].map(pod),
            [Some(uid.to_owned()), Some(uid.to_owned()), None]
        );
        assert_eq!(["4711", "", "4711x"].map(digits), [Some("4711".to_owned()), None, None]);
    }

    #[test]
    fn a_rank_is_a_number_that_a_launcher_gave() {
        assert_eq!(rank(b"A=1\0RANK=3\0SLURM_PROCID=7\0"), Some(3));
        assert_eq!(rank(b"RANK=x\0SLURM_PROCID=7\0"), Some(7));
        assert_eq!((rank(b"MY_RANK=3\0"), rank(b"")), (None, None));
    }

    #[test]
    fn this_process_is_known() {
        let own = Identity::of(std::process::id());
        assert_eq!(own.ppid, Some(std::os::unix::process::parent_id()));
        assert!(own.cpus_allowed.is_some() && own.script.is_none());
        assert_eq!(Identity::of(u32::MAX), Identity::default());
    }
}
