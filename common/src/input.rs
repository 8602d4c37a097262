//! Where a filter reads from: stdin, files, FIFOs; plain, gzip or zstd, told by their first bytes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read};

use anyhow::{Context, bail};

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// An input as named on the command line; `-` is stdin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input(OsString);

impl Input {
    /// From a command-line argument.
    pub fn new(name: impl Into<OsString>) -> Self {
        Self(name.into())
    }

    /// Standard input.
    pub fn stdin() -> Self {
        Self::new("-")
    }

    /// Whether it is standard input.
    pub fn is_stdin(&self) -> bool {
        self.0 == "-"
    }

    /// How it was named.
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// How messages name it.
    pub fn name(&self) -> String {
        match self.0.to_string_lossy() {
            _ if self.is_stdin() => "stdin".into(),
            name if name.is_empty() => "''".into(),
            name => name.into_owned(),
        }
    }

    /// Opens it and takes off what compresses it. A FIFO blocks here until somebody opens its other end.
    pub fn open(&self) -> anyhow::Result<Box<dyn Read + Send>> {
        let file = if self.is_stdin() {
            File::from(rustix::stdio::stdin().try_clone_to_owned().context("opening stdin")?)
        } else {
            let file = File::open(&self.0).with_context(|| format!("opening {}", self.name()))?;
            if file.metadata().is_ok_and(|m| m.is_dir()) {
                bail!("{} is a directory; name the file in it", self.name());
            }
            file
        };
        decompressed(file).with_context(|| format!("reading {}", self.name()))
    }
}

/// Looks at the first bytes and decompresses gzip and zstd.
fn decompressed(mut input: impl Read + Send + 'static) -> anyhow::Result<Box<dyn Read + Send>> {
    // Read no further than the shortest magic needs as long as it could still be one: a live pipe may
    // send a short first line and then nothing for long.
    let mut head = Vec::with_capacity(16);
    while head.len() < 16
        && [GZIP_MAGIC, ZSTD_MAGIC, SQLITE_MAGIC].iter().any(|m| head.len() < m.len() && m.starts_with(&head))
    {
        let mut byte = [0];
        match input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let kind = [GZIP_MAGIC, ZSTD_MAGIC, SQLITE_MAGIC].into_iter().find(|m| head.starts_with(m));
    let whole = io::Cursor::new(head).chain(input);
    match kind {
        Some(GZIP_MAGIC) => Ok(Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole)))),
        Some(ZSTD_MAGIC) => Ok(Box::new(zstd::Decoder::new(whole)?)),
        Some(_) => {
            bail!("this is an SQLite database; ingero-join reads those that ingero recorded (ingero-join FILE | …)")
        }
        None => Ok(Box::new(whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        decompressed(io::Cursor::new(bytes)).unwrap().read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn plain_gzip_and_zstd() {
        let text = b"{\"a\":1}\n".repeat(1000);
        assert_eq!(read(text.clone()), text);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        // Two members after one another are one stream.
        let member = gz.finish().unwrap();
        assert_eq!(read([member.clone(), member].concat()), text.repeat(2));
        assert_eq!(read(zstd::encode_all(text.as_slice(), 1).unwrap()), text);
        assert_eq!(read(b"(".to_vec()), b"(");
        assert_eq!(read(Vec::new()), b"");
    }
}
