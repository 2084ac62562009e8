//! Reads functions and calls out of a linked aarch64 program.
//!
//! Instructions have a fixed width, so direct calls (`bl`) and tail calls (`b` out of the function) are seen
//! exactly. An indirect call (`blr`) is taken to reach every function whose address lies in a data section.
//! Not seen: addresses that code computes (`adr`), and frames of hand-written assembly that moves `sp` otherwise.

use core::ops::Range;
use std::collections::BTreeSet;

use anyhow::{Context, Result};
use object::elf::{SHF_ALLOC, SHF_EXECINSTR};
use object::{File, Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, SymbolKind};

use super::frame;

/// One function of the program.
pub(super) struct Function {
    /// Name without mangling and hash.
    pub(super) name: String,
    range: Range<u64>,
    frame: frame::Frame,
    calls: BTreeSet<usize>,
    has_indirect_call: bool,
}

/// How deep the stack gets below a function, itself included.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// At most so many bytes; the chain that needs them, outermost first.
    Bytes {
        /// Sum of the frames.
        bytes: u64,
        /// Frame and name of each function.
        chain: Vec<(u64, String)>,
    },
    /// No bound can be given.
    Unbounded {
        /// The reason.
        why: String,
    },
}

/// The functions of a program and who calls whom.
pub(super) struct Program {
    functions: Vec<Function>,
    address_taken: BTreeSet<usize>,
}

impl Program {
    /// Reads `file`.
    ///
    /// # Errors
    /// When its symbols or sections cannot be read.
    pub(super) fn read(file: &File<'_>) -> Result<Self> {
        let mut functions = functions(file)?;
        let starts: Vec<u64> = functions.iter().map(|function| function.range.start).collect();
        let find = |address: u64| starts.binary_search(&address).ok();
        for section in file.sections().filter(|section| is_code(section.flags())) {
            let code = section.data().context("a code section has no bytes")?;
            for function in &mut functions {
                if section.address() <= function.range.start
                    && function.range.end <= section.address() + section.size()
                {
                    scan(function, section.address(), code, &find);
                }
            }
        }
        let address_taken = data_words(file).filter_map(find).collect();
        Ok(Self { functions, address_taken })
    }

    /// Returns all functions in ascending order of address.
    pub(super) fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Returns the function whose name is `name`.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|function| function.name == name)
    }

    /// Returns the names of the functions that call `callee` directly.
    pub(super) fn callers(&self, callee: usize) -> Vec<&str> {
        let calls = self
            .functions
            .iter()
            .enumerate()
            .filter(|(index, function)| *index != callee && function.calls.contains(&callee));
        calls.map(|(_, function)| function.name.as_str()).collect()
    }

    /// Returns how deep the stack gets below `root`.
    pub(super) fn depth(&self, root: usize) -> Depth {
        let mut known = vec![None; self.functions.len()];
        match self.deepest(root, &mut known, &mut Vec::new()) {
            Err(why) => Depth::Unbounded { why },
            Ok(bytes) => Depth::Bytes { bytes, chain: self.chain(root, &known) },
        }
    }

    fn deepest(
        &self,
        index: usize,
        known: &mut [Option<(u64, Option<usize>)>],
        path: &mut Vec<usize>,
    ) -> Result<u64, String> {
        if let Some((bytes, _)) = known[index] {
            return Ok(bytes);
        }
        let function = &self.functions[index];
        if path.contains(&index) {
            return Err(format!("{} is recursive", function.name));
        }
        let Some(own) = function.frame.bytes() else {
            return Err(format!("{} has a frame of variable size", function.name));
        };
        path.push(index);
        let mut below = (0, None);
        for callee in self.callees(function) {
            let bytes = self.deepest(callee, known, path)?;
            below = below.max((bytes, Some(callee)));
        }
        path.pop();
        known[index] = Some((own + below.0, below.1));
        Ok(own + below.0)
    }

    fn callees<'a>(&'a self, function: &'a Function) -> impl Iterator<Item = usize> + 'a {
        let indirect = function.has_indirect_call.then_some(&self.address_taken).into_iter().flatten();
        function.calls.iter().chain(indirect).copied()
    }

    fn chain(&self, root: usize, known: &[Option<(u64, Option<usize>)>]) -> Vec<(u64, String)> {
        let mut chain = Vec::new();
        let mut next = Some(root);
        while let Some(index) = next {
            let function = &self.functions[index];
            let Some(own) = function.frame.bytes() else { break };
            chain.push((own, function.name.clone()));
            next = known[index].and_then(|(_, callee)| callee);
        }
        chain
    }
}

fn functions(file: &File<'_>) -> Result<Vec<Function>> {
    let mut functions = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let name = symbol.name().context("a function has no readable name")?;
        functions.push(Function {
            name: format!("{:#}", rustc_demangle::demangle(name)),
            range: symbol.address()..symbol.address() + symbol.size(),
            frame: frame::Frame::Fixed(0),
            calls: BTreeSet::new(),
            has_indirect_call: false,
        });
    }
    functions.sort_by_key(|function| function.range.start);
    functions.dedup_by_key(|function| function.range.start);
    Ok(functions)
}

fn is_code(flags: SectionFlags) -> bool {
    matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_EXECINSTR))
}

/// Returns whether the section takes room in memory when the program runs.
pub(super) fn is_loaded(flags: SectionFlags) -> bool {
    matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_ALLOC))
}

/// Returns every aligned 8-byte word of the loaded data: possible addresses of functions.
fn data_words<'data>(file: &File<'data>) -> impl Iterator<Item = u64> {
    let loaded = file.sections().filter(|section| {
        let flags = section.flags();
        // The entry is exported by its address, which is no way to get to it from inside.
        let exports = section.name() == Ok(".dynsym");
        is_loaded(flags) && !is_code(flags) && !exports && section.kind() != SectionKind::UninitializedData
    });
    loaded.filter_map(|section| section.data().ok()).flat_map(|data| {
        data.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
    })
}

fn scan(function: &mut Function, base: u64, code: &[u8], find: &impl Fn(u64) -> Option<usize>) {
    let mut frame = frame::Frame::Fixed(0);
    for address in function.range.clone().step_by(4) {
        // CAST: the offset lies inside the section, which is in memory.
        let Ok(at) = usize::try_from(address - base) else { return };
        let Some(bytes) = code.get(at..at + 4) else { return };
        let instruction = u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        frame = frame.after(instruction);
        match decode(address, instruction) {
            Flow::Call(target) => function.calls.extend(find(target)),
            Flow::Jump(target) if !function.range.contains(&target) => function.calls.extend(find(target)),
            Flow::IndirectCall => function.has_indirect_call = true,
            Flow::Jump(_) | Flow::Other => {}
        }
    }
    function.frame = frame;
}

#[derive(Debug, PartialEq, Eq)]
enum Flow {
    Call(u64),
    Jump(u64),
    IndirectCall,
    Other,
}

/// Decodes branches. Encodings: Arm ARM C6.2 `B`, `BL`, `BLR`.
fn decode(address: u64, instruction: u32) -> Flow {
    // Sign-extends the 26-bit word offset and scales it to bytes.
    let target = || address.wrapping_add_signed(i64::from((instruction << 6).cast_signed() >> 6) * 4);
    match instruction >> 26 {
        0b10_0101 => Flow::Call(target()),
        0b00_0101 => Flow::Jump(target()),
        _ if instruction & 0xffff_fc1f == 0xd63f_0000 => Flow::IndirectCall,
        _ => Flow::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::{Flow, decode};

    #[test]
    fn branches_decode_with_their_targets() {
        assert_eq!(decode(0x1000, 0x9400_0001), Flow::Call(0x1004), "bl .+4");
        assert_eq!(decode(0x1000, 0x97ff_ffff), Flow::Call(0x0ffc), "bl .-4");
        assert_eq!(decode(0x1000, 0x1400_0010), Flow::Jump(0x1040), "b .+64");
        assert_eq!(decode(0x1000, 0xd63f_0100), Flow::IndirectCall, "blr x8");
        assert_eq!(decode(0x1000, 0xd65f_03c0), Flow::Other, "ret");
        assert_eq!(decode(0x1000, 0x5400_0041), Flow::Other, "b.ne stays in the function");
    }
}
