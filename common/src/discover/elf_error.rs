use std::io;

/// Why an ELF file could not be used.
#[derive(Debug)]
pub enum ElfError {
    /// Not an ELF file of 64 bits, little endian, for a machine we know.
    NotOurs,
    /// The headers contradict each other or the file's length.
    Malformed(&'static str),
    /// Its tables are larger than what is worth reading.
    TooLarge {
        /// Bytes that would have had to be read.
        wanted_bytes: u64,
        /// Most bytes that are read.
        limit_bytes: u64,
    },
    /// A Go program: a return probe would break its growing stacks.
    Go,
    /// Reading failed.
    Io(io::Error),
}

impl std::fmt::Display for ElfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotOurs => f.write_str("no 64-bit little-endian ELF file for x86-64 or aarch64"),
            Self::Malformed(what) => write!(f, "malformed ELF file: {what}"),
            Self::TooLarge { wanted_bytes, limit_bytes } => {
                write!(f, "its symbol tables need {wanted_bytes} bytes, more than the {limit_bytes} that are read")
            }
            Self::Go => f.write_str("a Go program: return probes would corrupt its stacks, so it is left alone"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ElfError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ElfError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
