//! The official clients of the Model Context Protocol, installed once into `tests/.cache`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Output, cache, repository};

/// The client of PyPI's `mcp`.
pub struct Python {
    interpreter: PathBuf,
}

/// The client of npm's `@modelcontextprotocol/sdk`.
pub struct TypeScript {
    script: PathBuf,
}

impl Python {
    /// Installs what `tests/mcp/requirements.txt` lists. Fails the test where python3-venv or the package index is missing.
    #[track_caller]
    pub fn install() -> Self {
        let wanted = std::fs::read_to_string(source("requirements.txt")).unwrap();
        let directory = once("mcp-python", &wanted, |directory| {
            Output::of(Command::new("python3").args(["-m", "venv"]).arg(directory)).exits(0);
            let mut pip = Command::new(directory.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
            Output::of(pip.arg(source("requirements.txt"))).exits(0);
        });
        Self { interpreter: directory.join("bin/python") }
    }

    /// Runs it; `mode` is a revision of the protocol, `auto` or `legacy`.
    #[track_caller]
    pub fn run(&self, mode: &str, calls: &Value, server: &[&str]) -> Value {
        let mut command = Command::new(&self.interpreter);
        command.arg(source("client.py")).arg(mode).arg(calls.to_string()).args(server);
        said(&mut command)
    }
}

impl TypeScript {
    /// Installs what `tests/mcp/package-lock.json` lists. Fails the test where npm or its registry is missing.
    #[track_caller]
    pub fn install() -> Self {
        let wanted = std::fs::read_to_string(source("package-lock.json")).unwrap();
        let directory = once("mcp-typescript", &wanted, |directory| {
            std::fs::create_dir_all(directory).unwrap();
            for file in ["package.json", "package-lock.json"] {
                std::fs::copy(source(file), directory.join(file)).unwrap();
            }
            let mut npm = Command::new("npm");
            Output::of(npm.args(["ci", "--silent", "--ignore-scripts"]).current_dir(directory)).exits(0);
        });
        // Packages are looked for from where a module lies.
        let script = directory.join("client.mjs");
        std::fs::copy(source("client.mjs"), &script).unwrap();
        Self { script }
    }

    /// Runs it.
    #[track_caller]
    pub fn run(&self, calls: &Value, server: &[&str]) -> Value {
        let mut command = Command::new("node");
        command.arg(&self.script).arg(calls.to_string()).args(server);
        said(&mut command)
    }
}

fn source(file: &str) -> PathBuf {
    repository().join("tests/mcp").join(file)
}

/// A directory of the cache that `install` fills; again where `wanted` has changed or the last time was cut short.
#[track_caller]
fn once(name: &str, wanted: &str, install: impl FnOnce(&Path)) -> PathBuf {
    let directory = cache::place(name);
    let _held = cache::hold();
    let stamp = directory.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return directory;
    }
    let _ = std::fs::remove_dir_all(&directory);
    install(&directory);
    std::fs::write(stamp, wanted).unwrap();
    directory
}

#[track_caller]
fn said(command: &mut Command) -> Value {
    let output = Output::of(command).exits(0);
    serde_json::from_str(&output.text()).unwrap_or_else(|error| panic!("{error}\n{output}"))
}
