//! Programs of attach types that aya does not know, prepared by a second parse of the object.
//!
//! aya creates the maps, patches globals and fits the object to the kernel's types, but it loads uprobe programs only for
//! perf events. So the object is parsed once more with aya's own parser, and its references to maps are pointed at the
//! maps that aya has created already. The result shares all state with what aya loads.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use aya::Ebpf;
use aya::maps::Map;
use aya_obj::Object;
use aya_obj::generated::bpf_insn;

use crate::load::{Kernel, StartError};
use crate::sys::{self, AttachType};

/// An object whose programs are ready to be loaded as any attach type.
pub(crate) struct Programs {
    object: Object,
}

impl Programs {
    /// Parses `object` and links it with the maps of `ebpf`, which was loaded from the same bytes.
    ///
    /// All maps must still be in `ebpf`: call this before any is taken out.
    pub(crate) fn parse(kernel: &Kernel, object: &[u8], ebpf: &Ebpf) -> Result<Self, StartError> {
        let refused = |error: &(dyn std::error::Error + 'static)| StartError::refused("the BPF object", error);
        let mut object = Object::parse(object).map_err(|e| refused(&e))?;
        if let Some(features) = aya::features().btf() {
            object.fixup_and_sanitize_btf(features).map_err(|e| refused(&e))?;
        }
        object.relocate_btf(kernel.btf()).map_err(|e| refused(&e))?;

        let maps = mem::take(&mut object.maps);
        let linked: Vec<(&str, RawFd, &aya_obj::Map)> =
            maps.iter().filter_map(|(name, map)| Some((name.as_str(), map_fd(ebpf.map(name)?)?, map))).collect();
        let text_sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(linked.into_iter(), &text_sections).map_err(|e| refused(&e))?;
        object.relocate_calls(&text_sections).map_err(|e| refused(&e))?;
        object.sanitize_functions(aya::features());
        Ok(Self { object })
    }

    /// Loads program `name` for links of type `attach`.
    pub(crate) fn load(&self, name: &str, attach: AttachType) -> Result<OwnedFd, StartError> {
        let what = || format!("program {name}");
        let (instructions, license) =
            self.find(name).ok_or_else(|| StartError::refused(what(), &io::Error::from(io::ErrorKind::NotFound)))?;
        sys::load_program(name, instructions, license, attach, &mut []).map_err(|first| {
            // Only now ask the verifier to speak: a log slows every load down.
            let mut log = vec![0; 1 << 20];
            match sys::load_program(name, instructions, license, attach, &mut log) {
                Ok(_) => StartError::refused(what(), &first),
                Err(error) => {
                    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                    let text = String::from_utf8_lossy(&log[..end]);
                    StartError::refused(what(), &io::Error::other(format!("{error}. Verifier output: {text}")))
                }
            }
        })
    }

    fn find(&self, name: &str) -> Option<(&[bpf_insn], &CString)> {
        let program = self.object.programs.get(name)?;
        let function = self.object.functions.get(&program.function_key())?;
        Some((&function.instructions, &program.license))
    }
}

/// The descriptor of a map of one of the kinds that our objects use.
fn map_fd(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(map)
        | Map::PerCpuArray(map)
        | Map::HashMap(map)
        | Map::LruHashMap(map)
        | Map::PerCpuHashMap(map)
        | Map::RingBuf(map)
        | Map::SkStorage(map)
        | Map::Unsupported(map) => Some(map.fd().as_fd().as_raw_fd()),
        _ => None,
    }
}
