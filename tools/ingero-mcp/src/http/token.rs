//! Who may talk to the server: those who send the token.
//!
//! Without another one, a server on the loopback interface makes a random token of its own, since any user of the machine can
//! connect there. It is written to a file that only the server's user can read, in `XDG_RUNTIME_DIR`, else the directory for
//! temporary files, and removed when the server is ended by SIGINT, SIGTERM or SIGHUP. One of a server that was killed is
//! replaced by the next at the same port.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use subtle::ConstantTimeEq;

use crate::options::Options;

/// The shortest token that is taken.
const MIN_TOKEN_BYTES: usize = 16;

/// Random bytes in a token of our own.
const RANDOM_BYTES: usize = 32;

/// What clients must send.
#[derive(Clone)]
pub(super) struct Token(Arc<[u8]>);

impl Token {
    /// The token that the options name.
    ///
    /// Errors: a file that can't be read, a variable that isn't set, a token that is too short or has spaces in it.
    pub(super) fn from_options(options: &Options) -> anyhow::Result<Option<Self>> {
        let (text, origin) = match (&options.token_file, &options.token_env) {
            (Some(path), _) => (read_token(path)?, path.display().to_string()),
            (None, Some(name)) => {
                (std::env::var(name).with_context(|| format!("reading the token from ${name}"))?, format!("${name}"))
            }
            (None, None) => return Ok(None),
        };
        let token = text.trim();
        if token.len() < MIN_TOKEN_BYTES || !token.bytes().all(|b| b.is_ascii_graphic()) {
            bail!(
                "the token in {origin} must be {MIN_TOKEN_BYTES} printable characters or more without spaces; \
                 `openssl rand -hex 32` makes one"
            );
        }
        Ok(Some(Self(token.as_bytes().into())))
    }

    /// A new one, and the file that it was written to.
    ///
    /// Errors: no randomness, a directory that can't be written, somebody else's file in the way.
    pub(super) fn random(address: SocketAddr) -> anyhow::Result<(Self, PathBuf)> {
        let mut bytes = [0; RANDOM_BYTES];
        File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("reading /dev/urandom")?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
        let path = dir.unwrap_or_else(std::env::temp_dir).join(format!("ingero-mcp-{}.token", address.port()));
        let doing = || {
            format!(
                "writing the token to {} (--token-file takes one of yours, --no-token serves without)",
                path.display()
            )
        };
        write_private(&path, &format!("{text}\n")).with_context(doing)?;
        Ok((Self(text.into_bytes().into()), path))
    }

    /// Whether a request carries it. How long that takes does not depend on how much of it is right.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let (scheme, token) = sent.split_at(sent.len().min(7));
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(token.ct_eq(&self.0))
    }
}

fn read_token(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading the token from {}", path.display()))
}

/// Writes a new file that only this user can read. In a directory that others can write to, something of theirs may be in the
/// way, a link for instance: it is never written through, and only what is our own is replaced.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = match create() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let old = std::fs::symlink_metadata(path)?;
            if !old.is_file() || old.uid() != rustix::process::geteuid().as_raw() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            create()?
        }
        result => result?,
    };
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_right() {
        let token = Token(b"0123456789abcdef".as_slice().into());
        let sends = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            token.is_in(&headers)
        };
        assert!(sends("Bearer 0123456789abcdef"));
        assert!(sends("bearer 0123456789abcdef"));
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Basic 0123456789abcdef"]
        {
            assert!(!sends(wrong), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
    }

    #[test]
    fn nothing_is_written_through_what_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("token"), dir.path().join("elsewhere"));
        std::fs::write(&elsewhere, "").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(write_private(&path, "secret").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "");
        std::fs::remove_file(&path).unwrap();
        // One of our own that everybody could read is replaced, not written to.
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        write_private(&path, "secret").unwrap();
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), mode), ("secret", 0o600));
    }
}
