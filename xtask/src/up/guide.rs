//! The text that `up` prints about a running server.

use std::{path::Path, time::Duration};

use super::settings::Settings;
use crate::duration::readable;

/// SDK release that the example was tested with.
const SDK: &str = "opensandbox==1.1.1";

/// Describes where the server is and how to use it.
pub(crate) struct Guide<'a> {
    /// Settings of the running server.
    pub(crate) settings: &'a Settings,
    /// State folder, which holds the log.
    pub(crate) state: &'a Path,
    /// Whether the server keeps running after xtask exits.
    pub(crate) detached: bool,
    /// How long `up` took, if it started the server.
    pub(crate) took: Option<Duration>,
}

impl Guide<'_> {
    /// Prints the guide to stdout.
    pub(crate) fn print(&self) {
        let Settings {
            address,
            api_key,
            file,
        } = self.settings;
        let stop = if self.detached {
            "cargo xtask down"
        } else {
            "Ctrl-C"
        };
        let after = self
            .took
            .map(|took| format!(" after {}", readable(took)))
            .unwrap_or_default();
        println!("\nOpenSandbox is ready{after}.\n");
        println!("  Console    http://{}/console", console_host(address));
        println!("  API        http://{address}/v1   (described at http://{address}/docs)");
        println!(
            "  API key    {}",
            api_key
                .as_deref()
                .unwrap_or("none: the configuration has no key")
        );
        println!("  Config     {}", file.display());
        println!("  Log        {}", self.state.join("server.log").display());
        println!("  Stop       {stop}\n");
        println!("Try it from Python (pip install {SDK}):\n");
        for line in example(address, api_key.as_deref()).lines() {
            println!("  {line}");
        }
        println!();
    }
}

/// The host under which to open the console. Cookies ignore ports: on the address that sandbox ports
/// are published on, a page of a sandbox could receive the console's cookie. `localhost` is the same
/// machine but another site.
fn console_host(address: &str) -> String {
    match address.strip_prefix("127.0.0.1:") {
        Some(port) => format!("localhost:{port}"),
        None => address.to_owned(),
    }
}

/// A Python example of five lines that creates a sandbox, runs a command in it and deletes it.
fn example(address: &str, api_key: Option<&str>) -> String {
    let key = api_key
        .map(|key| format!(", api_key=\"{key}\""))
        .unwrap_or_default();
    format!(
        "from opensandbox import SandboxSync\n\
         from opensandbox.config import ConnectionConfigSync\n\
         box = SandboxSync.create(\"{}\", connection_config=ConnectionConfigSync(domain=\"{address}\"{key}))\n\
         print(box.commands.run(\"echo hello from $(hostname)\").logs.stdout[0].text)\n\
         box.destroy()\n",
        super::image::TAG
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_has_five_lines_and_the_key() {
        let text = example("127.0.0.1:8080", Some("k3y"));
        assert_eq!(text.lines().count(), 5);
        assert!(
            text.contains("domain=\"127.0.0.1:8080\", api_key=\"k3y\""),
            "{text}"
        );
        assert!(!example("127.0.0.1:8080", None).contains("api_key"));
    }
}
