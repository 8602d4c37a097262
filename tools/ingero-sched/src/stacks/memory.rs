//! The memory of another process, read without stopping it: what was read may have been changing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The memory of one process.
#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    /// That of process `pid`, as it is from now on: when it becomes another program, nothing can be read any more.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }

    pub(crate) fn bytes<const N: usize>(&self, address: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    pub(crate) fn vec(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    pub(crate) fn word(&self, address: u64) -> io::Result<u64> {
        self.bytes(address).map(u64::from_ne_bytes)
    }
}
