//! Commands as one types them into a shell.

/// The words of a command in one line, each quoted if a POSIX shell would change it otherwise.
#[must_use]
pub fn shell_line(words: &[String]) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        push_word(&mut line, word);
    }
    line
}

fn push_word(line: &mut String, word: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+:,./-=".contains(&byte);
    // A word with `=` at the beginning of a line would be an assignment.
    let is_assignment = line.is_empty() && word.contains('=');
    if !word.is_empty() && word.bytes().all(is_plain) && !is_assignment {
        line.push_str(word);
        return;
    }
    line.push('\'');
    line.push_str(&word.replace('\'', r"'\''"));
    line.push('\'');
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn line(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        shell_line(&words)
    }

    #[test]
    fn only_what_a_shell_would_change_is_quoted() {
        assert_eq!(line(&["tail", "-f", "/dev/null"]), "tail -f /dev/null");
        assert_eq!(line(&["sh", "-c", "exit 3"]), "sh -c 'exit 3'");
        assert_eq!(line(&["env", "A=1", "x"]), "env A=1 x");
        assert_eq!(line(&["A=1", ""]), "'A=1' ''");
        assert_eq!(line(&[]), "");
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        let hostile = [
            "a b", "it's", "\"q\"", "$HOME", "`id`", "a\nb", "\\", "*", "~", "#x", "!x", "é", "-n",
            "", "a=b;c", "'", "''", "{a,b}", "\t", "<>|&",
        ];
        let script = format!(
            "for word in {}; do printf '%s\\0' \"$word\"; done",
            line(&hostile)
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let read: Vec<&str> = text.split_terminator('\0').collect();
        assert_eq!(read, hostile, "{script}");
    }
}
