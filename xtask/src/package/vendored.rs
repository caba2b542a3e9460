//! Software of others inside a crate. Lists of known defects name it by its own name and version, not
//! by those of the crate.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::{
    component::{Component, Origin},
    licence::Expression,
};

/// What a crate contains.
struct Vendored {
    package: &'static str,
    name: &'static str,
    licence: &'static str,
    source: &'static str,
    /// Finds the version in the folder of the crate.
    version: fn(&Path) -> Option<String>,
}

static ALL: [Vendored; 2] = [
    Vendored {
        package: "libsqlite3-sys",
        name: "sqlite",
        licence: "blessing",
        source: "https://sqlite.org/src",
        version: sqlite_version,
    },
    Vendored {
        package: "utoipa-swagger-ui-vendored",
        name: "swagger-ui",
        licence: "Apache-2.0",
        source: "https://github.com/swagger-api/swagger-ui",
        version: swagger_version,
    },
];

/// The software that a crate contains.
pub(super) fn inside(component: &Component) -> Result<Option<Component>> {
    let vendored = ALL.iter().find(|it| it.package == component.name);
    let (Some(vendored), Some(folder)) = (vendored, &component.folder) else {
        return Ok(None);
    };
    let version = (vendored.version)(folder);
    let version = version.with_context(|| {
        format!(
            "{} is not where it was in {}",
            vendored.name,
            component.title()
        )
    });
    Ok(Some(Component {
        origin: Origin::Listed,
        name: vendored.name.to_owned(),
        version: version?,
        licence: Expression::parse(vendored.licence)?,
        authors: Vec::new(),
        folder: None,
        sha256: None,
        repository: Some(vendored.source.to_owned()),
    }))
}

fn sqlite_version(folder: &Path) -> Option<String> {
    let header = fs::read_to_string(folder.join("sqlite3/sqlite3.h")).ok()?;
    let mut lines = header.lines();
    let version = lines.find_map(|line| line.strip_prefix("#define SQLITE_VERSION "))?;
    Some(version.trim().trim_matches('"').to_owned())
}

/// The crate has the archive of one release, such as `res/v5.32.6.zip`.
fn swagger_version(folder: &Path) -> Option<String> {
    let files = fs::read_dir(folder.join("res")).ok()?;
    let mut names = files.flatten().map(|file| file.file_name());
    names.find_map(|name| {
        let version = name.to_str()?.strip_prefix('v')?.strip_suffix(".zip")?;
        Some(version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str, folder: &Path) -> Component {
        Component {
            origin: Origin::Crates,
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: Expression::parse("MIT").unwrap(),
            authors: Vec::new(),
            folder: Some(folder.to_owned()),
            sha256: None,
            repository: None,
        }
    }

    #[test]
    fn software_inside_crates_has_a_version_of_its_own() {
        let folder = std::env::temp_dir().join(format!("xtask-vendored-{}", std::process::id()));
        for part in ["sqlite3", "res"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let header = "#define SQLITE_VERSION_NUMBER 3051003\n#define SQLITE_VERSION  \"3.51.3\"\n";
        fs::write(folder.join("sqlite3/sqlite3.h"), header).unwrap();
        fs::write(folder.join("res/v5.32.6.zip"), "").unwrap();
        let version = |package| {
            let found = inside(&component(package, &folder)).unwrap();
            found.map(|found| found.title())
        };
        assert_eq!(version("libsqlite3-sys").unwrap(), "sqlite 3.51.3");
        let swagger = version("utoipa-swagger-ui-vendored");
        assert_eq!(swagger.unwrap(), "swagger-ui 5.32.6");
        assert_eq!(version("serde"), None);
        fs::remove_dir_all(&folder).unwrap();
        // The next release of a crate may have moved it.
        let moved = inside(&component("libsqlite3-sys", &folder)).unwrap_err();
        assert!(
            moved.to_string().contains("sqlite is not where it was"),
            "{moved}"
        );
    }
}
