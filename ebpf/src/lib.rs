//! BPF programs and loader.
