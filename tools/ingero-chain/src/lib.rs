//! ingero-chain, as a library.
