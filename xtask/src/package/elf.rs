//! What a program in ELF needs from the system that runs it.

use anyhow::{Context, Result, bail, ensure};

/// `e_machine` of the machines that programs are built for.
const X86_64: u16 = 62;
const AARCH64: u16 = 183;
/// Types of program headers.
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERP: u32 = 3;
/// Tags of the dynamic section.
const NULL: u64 = 0;
const NEEDED: u64 = 1;
const STRTAB: u64 = 5;
/// Size of an entry of the dynamic section.
const ENTRY: usize = 16;
/// Size of a program header.
const HEADER: usize = 56;

/// A program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    machine: u16,
    /// The dynamic linker that starts it, if any.
    interpreter: Option<String>,
    /// Libraries that it is linked with at its start.
    needed: Vec<String>,
}

/// A part of the file that is mapped into memory.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

impl Elf {
    /// Reads the headers of a 64-bit program.
    pub(crate) fn parse(file: &[u8]) -> Result<Self> {
        ensure!(file.starts_with(b"\x7fELF"), "it is no ELF file");
        let kind: [u8; 2] = part(file, 4)?;
        ensure!(
            kind == [2, 1],
            "it is not for a 64-bit little-endian machine"
        );
        let segments = segments(file)?;
        let interpreter = segments.iter().find(|segment| segment.kind == INTERP);
        let dynamic = segments.iter().find(|segment| segment.kind == DYNAMIC);
        Ok(Self {
            machine: u16::from_le_bytes(part(file, 18)?),
            interpreter: interpreter
                .map(|segment| text(file, position(segment.offset)?))
                .transpose()?,
            needed: match dynamic {
                Some(dynamic) => needed(file, dynamic, &segments)?,
                None => Vec::new(),
            },
        })
    }

    /// Fails unless the program runs on any Linux of an architecture, as Rust names it, whatever
    /// libraries it has.
    pub(crate) fn require_static(&self, architecture: &str) -> Result<()> {
        let machine = match self.machine {
            X86_64 => "x86_64",
            AARCH64 => "aarch64",
            _ => "another machine",
        };
        ensure!(
            machine == architecture,
            "it is for {machine}, not for {architecture}"
        );
        if let Some(interpreter) = &self.interpreter {
            bail!("it is not static: {interpreter} has to start it");
        }
        let needed = self.needed.join(", ");
        ensure!(
            self.needed.is_empty(),
            "it is not static: it needs {needed}"
        );
        Ok(())
    }
}

fn segments(file: &[u8]) -> Result<Vec<Segment>> {
    let table = u64::from_le_bytes(part(file, 32)?);
    let size = usize::from(u16::from_le_bytes(part(file, 54)?));
    let count = usize::from(u16::from_le_bytes(part(file, 56)?));
    ensure!(
        count == 0 || size >= HEADER,
        "its program headers are too small"
    );
    let headers = 0..count;
    headers
        .map(|index| {
            let at = position(table)?.checked_add(index * size);
            let at = at.context("its program headers are out of range")?;
            Ok(Segment {
                kind: u32::from_le_bytes(part(file, at)?),
                offset: u64::from_le_bytes(part(file, at + 8)?),
                address: u64::from_le_bytes(part(file, at + 16)?),
                length: u64::from_le_bytes(part(file, at + 32)?),
            })
        })
        .collect()
}

/// Names of the libraries in the dynamic section.
fn needed(file: &[u8], dynamic: &Segment, segments: &[Segment]) -> Result<Vec<String>> {
    let (mut names, mut strings) = (Vec::new(), None);
    let entries = position(dynamic.length)? / ENTRY;
    for index in 0..entries {
        let at = position(dynamic.offset)?.checked_add(index * ENTRY);
        let at = at.context("its dynamic section is out of range")?;
        let tag = u64::from_le_bytes(part(file, at)?);
        let value = u64::from_le_bytes(part(file, at + 8)?);
        match tag {
            NULL => break,
            NEEDED => names.push(value),
            STRTAB => strings = Some(value),
            _ => {}
        }
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let strings = strings.context("its dynamic section has no names")?;
    let strings = offset_of(strings, segments).context("its names are not in the file")?;
    let names = names.into_iter();
    names
        .map(|name| {
            let at = strings.checked_add(name);
            text(file, position(at.context("a name is out of range")?)?)
        })
        .collect()
}

/// Where the file has what is mapped at an address.
fn offset_of(address: u64, segments: &[Segment]) -> Option<u64> {
    let mut loaded = segments.iter().filter(|segment| segment.kind == LOAD);
    loaded.find_map(|segment| {
        let within = address.checked_sub(segment.address)?;
        let is_in_file = within < segment.length;
        is_in_file.then(|| segment.offset.checked_add(within))?
    })
}

/// A text that ends with a NUL.
fn text(file: &[u8], at: usize) -> Result<String> {
    let rest = file.get(at..).context("a name is out of range")?;
    let end = rest.iter().position(|byte| *byte == 0);
    let text = &rest[..end.context("a name has no end")?];
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn part<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let end = at.checked_add(N).context("a header is out of range")?;
    let bytes = file.get(at..end).context("it ends too early")?;
    Ok(bytes.try_into()?)
}

fn position(offset: u64) -> Result<usize> {
    usize::try_from(offset).context("an offset is out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the crafted files have what their headers point to.
    const HEADERS: u64 = 64;
    const NAMES: u64 = 0x400;
    const TABLE: u64 = 0x500;
    const BASE: u64 = 0x10_0000;

    fn put(file: &mut [u8], at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A file with these program headers: type, offset, address, length.
    fn file(machine: u16, headers: &[(u32, u64, u64, u64)]) -> Vec<u8> {
        let mut file = vec![0; 0x600];
        put(&mut file, 0, b"\x7fELF\x02\x01\x01");
        put(&mut file, 18, &machine.to_le_bytes());
        put(&mut file, 32, &HEADERS.to_le_bytes());
        put(&mut file, 54, &56_u16.to_le_bytes());
        let count = u16::try_from(headers.len()).unwrap();
        put(&mut file, 56, &count.to_le_bytes());
        for (index, (kind, offset, address, length)) in headers.iter().enumerate() {
            let at = HEADERS + 56 * index as u64;
            put(&mut file, at, &kind.to_le_bytes());
            put(&mut file, at + 8, &offset.to_le_bytes());
            put(&mut file, at + 16, &address.to_le_bytes());
            put(&mut file, at + 32, &length.to_le_bytes());
        }
        file
    }

    fn loaded() -> (u32, u64, u64, u64) {
        (LOAD, 0, BASE, 0x600)
    }

    /// A file with these entries in its dynamic section.
    fn dynamic(entries: &[(u64, u64)]) -> Vec<u8> {
        let length = 16 * entries.len() as u64;
        let mut file = file(X86_64, &[loaded(), (DYNAMIC, TABLE, BASE + TABLE, length)]);
        put(&mut file, NAMES, b"\0libc.so.6\0libm.so.6\0");
        for (index, (tag, value)) in entries.iter().enumerate() {
            put(&mut file, TABLE + 16 * index as u64, &tag.to_le_bytes());
            put(
                &mut file,
                TABLE + 16 * index as u64 + 8,
                &value.to_le_bytes(),
            );
        }
        file
    }

    fn problem(file: &[u8], architecture: &str) -> Option<String> {
        let checked = Elf::parse(file).and_then(|elf| elf.require_static(architecture));
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn a_program_without_linker_and_libraries_is_static() {
        assert_eq!(problem(&file(X86_64, &[loaded()]), "x86_64"), None);
        assert_eq!(problem(&file(AARCH64, &[loaded()]), "aarch64"), None);
        // One at any address has a dynamic section, too.
        let relocatable = dynamic(&[(7, 0x1f38), (NULL, 0), (NEEDED, 1)]);
        assert_eq!(problem(&relocatable, "x86_64"), None);
    }

    #[test]
    fn what_a_program_needs_is_named() {
        let mut linked = file(X86_64, &[(INTERP, NAMES, 0, 8), loaded()]);
        put(&mut linked, NAMES, b"/lib/ld.so\0");
        let seen = problem(&linked, "x86_64");
        assert_eq!(
            seen.unwrap(),
            "it is not static: /lib/ld.so has to start it"
        );
        let linked = dynamic(&[(NEEDED, 11), (NEEDED, 1), (STRTAB, BASE + NAMES), (NULL, 0)]);
        let seen = problem(&linked, "x86_64");
        assert_eq!(
            seen.unwrap(),
            "it is not static: it needs libm.so.6, libc.so.6"
        );
        let other = problem(&file(X86_64, &[loaded()]), "aarch64");
        assert_eq!(other.unwrap(), "it is for x86_64, not for aarch64");
    }

    #[test]
    fn a_damaged_program_is_an_error() {
        let whole = dynamic(&[(NEEDED, 1), (STRTAB, BASE + NAMES), (NULL, 0)]);
        for end in [0, 3, 20, 60, 80, 0x410, 0x508] {
            assert!(Elf::parse(&whole[..end]).is_err(), "{end}");
        }
        let damages: [(u64, &[u8]); 8] = [
            (0, b"MZ"),
            (4, &[1]),
            (5, &[2]),
            // The table of headers, and the size of one.
            (32, &[0xff; 8]),
            (54, &[1, 0]),
            // Where the dynamic section and the names are.
            (64 + 56 + 8, &[0xff; 8]),
            (TABLE + 24, &[0xff; 8]),
            (TABLE + 8, &[0xff; 8]),
        ];
        for (at, bytes) in damages {
            let mut damaged = whole.clone();
            put(&mut damaged, at, bytes);
            assert!(Elf::parse(&damaged).is_err(), "{at}");
        }
    }

    #[test]
    fn this_program_is_read_as_its_loader_reads_it() {
        let elf = Elf::parse(&std::fs::read("/proc/self/exe").unwrap()).unwrap();
        let libraries = elf.needed.iter().any(|name| name.starts_with("libc.so"));
        assert_eq!(libraries, elf.interpreter.is_some(), "{elf:?}");
    }
}
