//! A part of a file as a page shows it: as text, or as bytes.

use bytes::BytesMut;
use futures::StreamExt;
use osb_app::files::Content;
use osb_client::execd::Download;

/// Bytes of a part that is shown as text.
pub(super) const TEXT: usize = 256 * 1024;
/// Bytes of a part that is shown as bytes.
pub(super) const BYTES: usize = 4 * 1024;
/// Bytes of one line.
const LINE: usize = 16;
/// Longest rest of a character in UTF-8.
const REST: usize = 3;

/// Reads what comes, no more than `most` bytes.
pub(super) async fn read(
    mut download: Download,
    most: usize,
) -> Result<BytesMut, osb_client::Error> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = download.next().await {
        bytes.extend_from_slice(&chunk?);
        if bytes.len() >= most {
            bytes.truncate(most);
            break;
        }
    }
    Ok(bytes)
}

/// The content of a part of a file of `size` bytes that begins at byte `from`, with its first byte and
/// its length. Letters that are cut off at an end are left out.
pub(super) fn content(bytes: &[u8], from: u64, size: u64, as_bytes: bool) -> (Content, u64, u64) {
    if !as_bytes && let Some((text, cut)) = text(bytes, from, size) {
        let (from, length) = (from + cut as u64, text.len() as u64);
        return (Content::Text(text), from, length);
    }
    let bytes = &bytes[..bytes.len().min(BYTES)];
    let lines = bytes.chunks(LINE).zip((from..).step_by(LINE));
    let lines = lines.map(|(line, at)| shown(at, line)).collect();
    (Content::Bytes(lines), from, bytes.len() as u64)
}

/// The text of a part, and how many bytes at its beginning belong to a letter before it.
fn text(bytes: &[u8], from: u64, size: u64) -> Option<(String, usize)> {
    let is_rest = |byte: &u8| (0x80..0xC0).contains(byte);
    let cut = match from {
        0 => 0,
        _ => bytes
            .iter()
            .take(REST)
            .take_while(|byte| is_rest(byte))
            .count(),
    };
    let bytes = &bytes[cut..];
    let is_end = from + (cut + bytes.len()) as u64 >= size;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // The last letter is cut off.
        Err(error) if error.error_len().is_none() && !is_end => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then(|| (text.to_owned(), cut))
}

/// A line of bytes: where it begins, their values, and what is readable.
fn shown(at: u64, bytes: &[u8]) -> String {
    let mut values = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        let space = if index == LINE / 2 { "  " } else { " " };
        values.push_str(space);
        values.push_str(&format!("{byte:02x}"));
    }
    let readable = bytes.iter().map(|byte| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '·',
    });
    let readable: String = readable.collect();
    // As wide as a whole line.
    format!("{at:08x} {values:<49}  {readable}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(bytes: &[u8], from: u64, size: u64) -> Option<(String, u64, u64)> {
        match content(bytes, from, size, false) {
            (Content::Text(text), from, length) => Some((text, from, length)),
            _ => None,
        }
    }

    #[test]
    fn letters_that_are_cut_off_are_left_out() {
        let whole = "aé€😀z".as_bytes();
        let size = whole.len() as u64;
        assert_eq!(text_of(whole, 0, size).unwrap().0, "aé€😀z");
        for from in 0..whole.len() {
            for to in from..=whole.len() {
                let part = &whole[from..to];
                let (text, first, length) = text_of(part, from as u64, size)
                    .unwrap_or_else(|| panic!("{from}..{to} is no text"));
                assert!("aé€😀z".contains(&text), "{from}..{to}: {text}");
                assert!(first + length <= to as u64);
            }
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_bytes() {
        for bytes in [&b"a\0b"[..], b"\xff\xfe", b"a\xc3", b"\x89PNG\r\n"] {
            assert_eq!(text_of(bytes, 0, bytes.len() as u64), None, "{bytes:?}");
        }
        let (lines, from, length) = content(b"0123456789abcdefg\n\xff", 32, 51, true);
        assert_eq!((from, length), (32, 19));
        assert_eq!(
            lines,
            Content::Bytes(vec![
                "00000020  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  0123456789abcdef"
                    .to_owned(),
                format!("00000030  67 0a ff{}  g··", " ".repeat(40)),
            ])
        );
        let (_, _, length) = content(&vec![0xff; TEXT], 0, TEXT as u64, false);
        assert_eq!(length, BYTES as u64);
    }

    #[test]
    fn nothing_is_an_empty_text() {
        assert_eq!(text_of(b"", 0, 0), Some((String::new(), 0, 0)));
    }
}
