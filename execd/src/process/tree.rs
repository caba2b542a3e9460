//! Process tree, read from `/proc`.

use std::{collections::HashMap, fs};

use rustix::process::Pid;

/// All descendants of a process, without itself.
#[must_use]
pub fn descendants(root: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw)
        else {
            continue;
        };
        // Processes may vanish meanwhile.
        let Ok(stat) = fs::read(entry.path().join("stat")) else {
            continue;
        };
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let of_pid = children.remove(&pid).unwrap_or_default();
        found.extend(&of_pid);
        next.extend(of_pid);
    }
    found
}

/// Whether a process has children. Reads the kernel's list for each thread, where it is available.
#[must_use]
pub fn has_children(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let mut is_listed = false;
    for thread in threads.into_iter().flatten().flatten() {
        match fs::read(thread.path().join("children")) {
            Ok(children) if children.is_empty() => is_listed = true,
            Ok(_) => return true,
            Err(_) => {}
        }
    }
    !is_listed && !descendants(pid).is_empty()
}

/// Parent in a `stat` line: the second field after the name, which is in parentheses and may
/// contain any bytes.
fn parent_of(stat: &[u8]) -> Option<Pid> {
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = std::str::from_utf8(&stat[after..]).ok()?;
    text.split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_seen() {
        let own = rustix::process::getpid();
        // It ends with its input, even if an assertion fails.
        let (input, _held) = std::io::pipe().unwrap();
        let mut child = std::process::Command::new("cat")
            .stdin(input)
            .spawn()
            .unwrap();
        let of_child = Pid::from_child(&child);
        assert!(has_children(own) && !has_children(of_child));
        assert!(descendants(own).contains(&of_child));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn odd_names_do_not_confuse() {
        let parent = |line: &str| parent_of(line.as_bytes()).map(|pid| pid.as_raw_nonzero().get());
        assert_eq!(parent("7 (a) R 3 (b) S 4 7"), Some(4));
        assert_eq!(parent("7 (sh) S 3 7 7"), Some(3));
        assert_eq!(parent("1 (init) S 0 1 1"), None);
        assert_eq!(parent("nonsense"), None);
    }
}
