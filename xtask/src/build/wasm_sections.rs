//! The sections of a wasm file.

/// Magic number and version.
const HEADER: usize = 8;
/// Id of a section that the module runs without, such as the names of its functions.
const CUSTOM: u8 = 0;

/// The module without its custom sections; `None` if it ends within a section.
pub(super) fn without_custom(module: &[u8]) -> Option<Vec<u8>> {
    let (header, mut rest) = module.split_at_checked(HEADER)?;
    let mut kept = header.to_vec();
    while let Some((&id, after_id)) = rest.split_first() {
        let (length, body) = unsigned(after_id)?;
        let (_, next) = body.split_at_checked(length)?;
        let section = &rest[..rest.len() - next.len()];
        if id != CUSTOM {
            kept.extend_from_slice(section);
        }
        rest = next;
    }
    Some(kept)
}

/// Reads an unsigned LEB128 number of up to 32 bits; returns it and what follows.
fn unsigned(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u32;
    for (index, byte) in bytes.iter().enumerate().take(5) {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: &[u8] = b"\0asm\x01\0\0\0";

    fn section(id: u8, body: &[u8]) -> Vec<u8> {
        let low = u8::try_from(body.len() & 0x7f).unwrap();
        let high = u8::try_from(body.len() >> 7).unwrap();
        let mut section = vec![id, low | 0x80, high];
        section.extend_from_slice(body);
        section
    }

    #[test]
    fn custom_sections_are_left_out_and_others_stay_as_they_are() {
        let (types, code) = (section(1, &[7; 300]), section(10, &[0; 5]));
        let names = section(CUSTOM, &[4; 200]);
        let whole = [MAGIC, &types, &names, &code, &names].concat();
        let kept = [MAGIC, &types, &code].concat();
        assert_eq!(without_custom(&whole), Some(kept.clone()));
        assert_eq!(without_custom(&kept), Some(kept));
    }

    #[test]
    fn a_module_that_ends_early_is_refused() {
        let whole = [MAGIC, &section(10, &[0; 5])].concat();
        for end in 0..whole.len() {
            let is_complete = end == MAGIC.len();
            assert_eq!(
                without_custom(&whole[..end]).is_some(),
                is_complete,
                "{end}"
            );
        }
    }
}
