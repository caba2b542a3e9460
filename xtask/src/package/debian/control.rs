//! What the package manager knows of the package.

use anyhow::{Result, bail};

/// Name of the package.
pub(super) const PACKAGE: &str = "opensandbox-server";
/// Variables with which Debian's tools are given the maintainer.
const MAINTAINER: (&str, &str) = ("DEBFULLNAME", "DEBEMAIL");
/// Maintainer of packages whose builder names none.
const UNNAMED: (&str, &str) = ("OpenSandbox", "packages@opensandbox.invalid");

/// Fields of the package that differ between builds.
pub(super) struct Control<'a> {
    /// Its version, with the revision.
    pub(super) version: &'a str,
    /// Architecture, as Rust names it.
    pub(super) architecture: &'a str,
    /// Name and address of the maintainer.
    pub(super) maintainer: &'a str,
    /// Size of its files in KiB.
    pub(super) installed_kib: u64,
}

impl Control<'_> {
    /// Writes the file `control`. The programs are static, so there is nothing to depend on.
    pub(super) fn render(&self) -> Result<String> {
        let Self {
            version,
            maintainer,
            installed_kib,
            ..
        } = self;
        let architecture = architecture(self.architecture)?;
        Ok(format!(
            "Package: {PACKAGE}\n\
             Version: {version}\n\
             Architecture: {architecture}\n\
             Maintainer: {maintainer}\n\
             Installed-Size: {installed_kib}\n\
             Recommends: docker.io | docker-ce | moby-engine, ca-certificates\n\
             Suggests: postgresql\n\
             Section: admin\n\
             Priority: optional\n\
             Description: sandboxes for AI agents: server with web console\n \
             One server creates isolated containers on Docker, gives each a daemon that runs\n \
             commands, moves files and serves terminals, and shows all of it in a web console.\n \
             .\n \
             The package also has the daemon, which the server puts into sandboxes, and the\n \
             program of the sidecar that enforces network policies.\n"
        ))
    }
}

/// Debian's name of an architecture.
pub(super) fn architecture(rust: &str) -> Result<&'static str> {
    match rust {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("there is no package for {other} yet"),
    }
}

/// Name and address of the maintainer, from the environment.
pub(super) fn maintainer(env: impl Fn(&str) -> Option<String>) -> String {
    let given = |name, other: &str| env(name).unwrap_or_else(|| other.to_owned());
    let name = given(MAINTAINER.0, UNNAMED.0);
    let address = given(MAINTAINER.1, UNNAMED.1);
    format!("{name} <{address}>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_line_and_the_description_its_indent() {
        let control = Control {
            version: "1.2.3-1",
            architecture: "x86_64",
            maintainer: "A <a@example.org>",
            installed_kib: 70_000,
        };
        let text = control.render().unwrap();
        for line in [
            "Package: opensandbox-server",
            "Version: 1.2.3-1",
            "Architecture: amd64",
            "Maintainer: A <a@example.org>",
            "Installed-Size: 70000",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
        let (_, description) = text.split_once("Description: ").unwrap();
        let (synopsis, rest) = description.split_once('\n').unwrap();
        assert!(synopsis.len() < 80, "{synopsis}");
        assert!(rest.ends_with('\n') && !rest.contains("\n\n"), "{rest}");
        for line in rest.lines() {
            assert!(line.starts_with(' ') && !line.starts_with("  "), "{line:?}");
        }
        let other = Control {
            architecture: "riscv64",
            ..control
        };
        assert!(other.render().is_err());
    }

    #[test]
    fn the_maintainer_is_the_one_of_debians_tools() {
        let env = |name: &str| (name == "DEBEMAIL").then(|| "me@example.org".to_owned());
        assert_eq!(maintainer(env), "OpenSandbox <me@example.org>");
        let unnamed = "OpenSandbox <packages@opensandbox.invalid>";
        assert_eq!(maintainer(|_| None), unnamed);
    }
}
