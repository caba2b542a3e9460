//! The Debian package of the server. It is packed by `dpkg-deb`; what it contains is decided here and
//! in `deploy/debian`.

mod control;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use self::control::{Control, PACKAGE, maintainer};
use super::{
    Build,
    release::Release,
    tree::{Tree, compress},
};
use crate::{
    process::{query, run},
    repo::Repo,
};

/// Folder of the programs in the package. The server looks for execd beside itself.
const PROGRAMS: &str = "usr/lib/opensandbox";
/// Files that belong to the operator once they are installed.
const CONFFILES: [&str; 1] = ["etc/opensandbox/config.toml"];
/// Scripts that the package manager runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Pages for readers without the repository, and their names in the package.
const PAGES: [(&str, &str); 6] = [
    ("deploy/README.md", "README.md"),
    ("docs/configuration.md", "configuration.md"),
    ("docs/egress.md", "egress.md"),
    ("docs/operations.md", "operations.md"),
    ("docs/webhooks.md", "webhooks.md"),
    ("SECURITY.md", "SECURITY.md"),
];

/// What a package is made from.
pub(crate) struct Contents<'a> {
    /// The release.
    pub(crate) release: &'a Release,
    /// The programs.
    pub(crate) build: &'a Build,
    /// Licences of the parts.
    pub(crate) notices: &'a str,
    /// Bills of materials, with their file names.
    pub(crate) bills: &'a [(String, String)],
}

/// How a package is compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packing {
    /// As small as possible, with a method that every release of Debian reads.
    Release,
    /// Not at all, for tests.
    Test,
}

/// Makes a package in a folder and returns its file. `work` is a folder for its files until then.
pub(crate) fn build(
    repo: &Repo,
    contents: &Contents<'_>,
    packing: Packing,
    work: &Path,
    folder: &Path,
) -> Result<PathBuf> {
    if work.exists() {
        fs::remove_dir_all(work).with_context(|| format!("cannot empty {}", work.display()))?;
    }
    let tree = files(repo, contents)?;
    tree.write_folder(work)?;
    description(repo, contents, &tree, work)?.write_folder(&work.join("DEBIAN"))?;
    let version = contents.release.debian_version();
    let architecture = control::architecture(contents.build.architecture)?;
    let file = folder.join(format!("{PACKAGE}_{version}_{architecture}.deb"));
    let method = match packing {
        Packing::Release => "-Zxz",
        Packing::Test => "-Znone",
    };
    run(Command::new("dpkg-deb")
        .args([method, "--root-owner-group", "--build"])
        .args([work, &file])
        // Files that are newer get this time.
        .env("SOURCE_DATE_EPOCH", contents.release.epoch().to_string()))?;
    fs::remove_dir_all(work)?;
    Ok(file)
}

/// The files that are installed.
fn files(repo: &Repo, contents: &Contents<'_>) -> Result<Tree> {
    let mut tree = Tree::default();
    let deploy = |path: &str| repo.path("deploy").join(path);
    for (name, to) in [
        ("opensandbox-server", "opensandbox-server"),
        ("execd", "execd"),
        // The folder is the build context of the sidecar's image.
        ("egress", "egress/egress"),
    ] {
        let program = contents.build.programs.join(name);
        tree.copy(&format!("{PROGRAMS}/{to}"), 0o755, program);
    }
    let dockerfile = format!("{PROGRAMS}/egress/Dockerfile");
    tree.copy(&dockerfile, 0o644, deploy("egress/Dockerfile"));
    let program = "../lib/opensandbox/opensandbox-server";
    tree.link("usr/bin/opensandbox-server", program);
    // An operator may put the key into it.
    tree.copy(CONFFILES[0], 0o640, deploy("debian/config.toml"));
    let unit = "systemd/opensandbox-server.service";
    let installed = "usr/lib/systemd/system/opensandbox-server.service";
    tree.copy(installed, 0o644, deploy(unit));
    add_documents(&mut tree, repo, contents)?;
    Ok(tree)
}

fn add_documents(tree: &mut Tree, repo: &Repo, contents: &Contents<'_>) -> Result<()> {
    let below = |name: &str| format!("usr/share/doc/{PACKAGE}/{name}");
    for (page, name) in PAGES {
        tree.copy(&below(name), 0o644, repo.path(page));
    }
    let example = repo.path("deploy/config.docker.toml");
    tree.copy(&below("examples/config.docker.toml"), 0o644, example);
    tree.add(&below("copyright"), 0o644, COPYRIGHT);
    let changes = repo.path("CHANGELOG.md");
    let changes =
        fs::read(&changes).with_context(|| format!("cannot read {}", changes.display()))?;
    let debian = changelog(contents.release);
    let mut compressed = vec![
        ("changelog.gz".to_owned(), changes),
        ("changelog.Debian.gz".to_owned(), debian.into_bytes()),
        (
            "THIRD-PARTY-NOTICES.txt.gz".to_owned(),
            contents.notices.as_bytes().to_vec(),
        ),
    ];
    for (name, bill) in contents.bills {
        compressed.push((format!("{name}.gz"), bill.as_bytes().to_vec()));
    }
    for (name, text) in compressed {
        tree.add(&below(&name), 0o644, compress(&text)?);
    }
    let overrides = format!("usr/share/lintian/overrides/{PACKAGE}");
    tree.add(&overrides, 0o644, OVERRIDES);
    Ok(())
}

/// The files for the package manager, of a package whose files lie in `work`.
fn description(repo: &Repo, contents: &Contents<'_>, tree: &Tree, work: &Path) -> Result<Tree> {
    let mut kib = 0;
    for file in tree.files() {
        kib += work.join(file).metadata()?.len().div_ceil(1024);
    }
    let maintainer = maintainer(|name| std::env::var(name).ok());
    let version = contents.release.debian_version();
    let control = Control {
        version: &version,
        architecture: contents.build.architecture,
        maintainer: &maintainer,
        installed_kib: kib,
    };
    let mut description = Tree::default();
    description.add("control", 0o644, control.render()?);
    let conffiles = CONFFILES.map(|path| format!("/{path}\n")).concat();
    description.add("conffiles", 0o644, conffiles);
    // Those of conffiles are in the package manager's own records.
    let summed = tree.files().filter(|path| !CONFFILES.contains(path));
    let sums = query(Command::new("md5sum").args(summed).current_dir(work))?;
    description.add("md5sums", 0o644, sums + "\n");
    for script in SCRIPTS {
        let from = repo.path("deploy/debian").join(script);
        description.copy(script, 0o755, from);
    }
    Ok(description)
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: OpenSandbox
Comment:
 The programs contain software of others. THIRD-PARTY-NOTICES.txt.gz beside this file has its
 licences and copyright notices.

Files: *
Copyright: the contributors of OpenSandbox
License: Apache-2.0
 On Debian systems, /usr/share/common-licenses/Apache-2.0 has the text of this licence.
";

/// Findings of lintian that are intended.
const OVERRIDES: &str = "\
# execd and the sidecar run in images with another C library or none.
opensandbox-server: statically-linked-binary *
# The programs explain themselves with --help.
opensandbox-server: no-manual-page *
";

/// The changelog of the package, whose only entry leads to that of the release.
fn changelog(release: &Release) -> String {
    let maintainer = maintainer(|name| std::env::var(name).ok());
    format!(
        "{PACKAGE} ({}) unstable; urgency=medium\n\n  \
         * Release {}. changelog.gz has the changes.\n\n \
         -- {maintainer}  {}\n",
        release.debian_version(),
        release.version(),
        release.rfc5322()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> String {
        let unit = "deploy/systemd/opensandbox-server.service";
        fs::read_to_string(Repo::find().unwrap().path(unit)).unwrap()
    }

    /// The tree of a package with empty bills and notices.
    fn tree(repo: &Repo) -> Tree {
        let release = Release::at("1.2.3", 1_795_688_100);
        let bills = [("execd.cdx.json".to_owned(), "{}".to_owned())];
        let build = Build::of("aarch64", "/dist".into());
        let contents = Contents {
            release: &release,
            build: &build,
            notices: "",
            bills: &bills,
        };
        files(repo, &contents).unwrap()
    }

    #[test]
    fn the_package_has_what_its_unit_starts() {
        let repo = Repo::find().unwrap();
        let tree = tree(&repo);
        let files: Vec<_> = tree.files().collect();
        let unit = unit();
        let start = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let mut words = start.unwrap().split(' ');
        let program = words.next().unwrap().trim_start_matches('/');
        assert!(files.contains(&program), "{program}");
        let beside = Path::new(program).with_file_name("execd");
        assert!(files.contains(&beside.to_str().unwrap()), "{files:?}");
        let config = words.nth(1).unwrap().trim_start_matches('/');
        assert_eq!(config, CONFFILES[0]);
        assert!(files.contains(&config), "{config}");
        assert!(files.contains(&"usr/share/doc/opensandbox-server/execd.cdx.json.gz"));
    }

    #[test]
    fn the_key_of_the_scripts_is_where_the_unit_reads_it() {
        let repo = Repo::find().unwrap();
        let script =
            |name: &str| fs::read_to_string(repo.path("deploy/debian").join(name)).unwrap();
        let unit = unit();
        let env = unit
            .lines()
            .find_map(|line| line.strip_prefix("EnvironmentFile=-"))
            .unwrap();
        for name in ["postinst", "postrm"] {
            assert!(script(name).contains(&format!("$root{env}")), "{name}");
        }
        // The script makes one only for the configuration as it is shipped.
        assert!(script("postinst").contains("'^api_key = \"\"'"));
        assert!(
            script("config.toml")
                .lines()
                .any(|line| line == "api_key = \"\"")
        );
        let state = unit
            .lines()
            .find_map(|line| line.strip_prefix("WorkingDirectory="))
            .unwrap();
        assert!(script("config.toml").contains(&format!("path = \"{state}/")));
        assert!(script("postrm").contains(&format!("$root{state}\"")));
    }

    #[test]
    fn the_unit_does_not_bind_the_engines_socket() {
        // A restarted engine makes another socket, which a bound one would hide.
        let unit = unit();
        for line in unit.lines().filter(|line| !line.starts_with('#')) {
            assert!(!line.contains("docker.sock"), "{line}");
        }
    }

    #[test]
    fn the_changelog_is_in_debians_format() {
        let text = changelog(&Release::at("1.2.3", 1_795_688_100));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[0],
            "opensandbox-server (1.2.3-1) unstable; urgency=medium"
        );
        assert!(lines[2].starts_with("  * Release 1.2.3."), "{text}");
        assert!(lines[4].starts_with(" -- "), "{text}");
        assert!(
            lines[4].ends_with(">  Thu, 26 Nov 2026 10:15:00 +0000"),
            "{text}"
        );
    }
}
