//! What names, passwords and tenants may look like, in one place for the API and the command line.

use osb_protocol::{FieldError, identity::Role};

/// Longest name of a user, in bytes.
const USER_NAME_MAX: usize = 64;
/// Longest name of a key, in characters.
const KEY_NAME_MAX: usize = 128;
/// Shortest password, in characters.
const PASSWORD_MIN: usize = 12;
/// Longest password, in bytes: hashing a longer one would only cost time.
const PASSWORD_MAX: usize = 1024;
/// Longest name of a tenant, in characters.
const TENANT_MAX: usize = 128;

fn wrong(field: &str, rule: impl Into<String>) -> FieldError {
    FieldError::body("value_error", [field], rule)
}

/// The name as it is stored and compared.
pub(super) fn normal_user_name(name: &str) -> String {
    name.trim().to_ascii_lowercase()
}

pub(super) fn user_name(name: &str) -> Result<String, FieldError> {
    let name = normal_user_name(name);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    let first = name
        .bytes()
        .next()
        .is_some_and(|it| it.is_ascii_alphanumeric());
    if first && name.len() <= USER_NAME_MAX && name.bytes().all(allowed) {
        return Ok(name);
    }
    let rule =
        format!("must be 1 to {USER_NAME_MAX} of a-z 0-9 . _ @ - and begin with a letter or digit");
    Err(wrong("name", rule))
}

pub(super) fn key_name(name: &str) -> Result<String, FieldError> {
    line("name", name, KEY_NAME_MAX)
}

pub(super) fn password(password: &str) -> Result<(), FieldError> {
    if password.chars().count() < PASSWORD_MIN {
        let rule = format!("must have at least {PASSWORD_MIN} characters");
        return Err(wrong("password", rule));
    }
    if password.len() > PASSWORD_MAX {
        let rule = format!("must have at most {PASSWORD_MAX} bytes");
        return Err(wrong("password", rule));
    }
    Ok(())
}

/// The tenant of an account. A service administrator is limited to none; on a server with tenants, every
/// other account is limited to one.
pub(super) fn tenant(
    tenant: Option<&str>,
    role: Role,
    has_tenants: bool,
) -> Result<Option<String>, FieldError> {
    let Some(tenant) = tenant else {
        if lacks_tenant(tenant, role, has_tenants) {
            let rule = "must be set on a server with [tenants], except for the role service_admin";
            return Err(wrong("tenant", rule));
        }
        return Ok(None);
    };
    if role == Role::ServiceAdmin {
        return Err(wrong("tenant", "must be absent for the role service_admin"));
    }
    tenant_name(tenant).map(Some)
}

/// Whether an account would reach every tenant although it administers none.
pub(super) fn lacks_tenant(tenant: Option<&str>, role: Role, has_tenants: bool) -> bool {
    has_tenants && tenant.is_none() && role != Role::ServiceAdmin
}

/// The name of a tenant.
pub(super) fn tenant_name(tenant: &str) -> Result<String, FieldError> {
    line("tenant", tenant, TENANT_MAX)
}

fn line(field: &str, text: &str, most: usize) -> Result<String, FieldError> {
    let text = text.trim();
    let length = text.chars().count();
    if (1..=most).contains(&length) && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    let rule = format!("must be 1 to {most} characters without line breaks");
    Err(wrong(field, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_compared_without_case() {
        assert_eq!(user_name(" Zoe.K@example-1 ").unwrap(), "zoe.k@example-1");
        for bad in ["", "  ", ".zoe", "zo e", "zoë", "a/b", &"a".repeat(65)] {
            assert_eq!(user_name(bad).unwrap_err().field(), "name", "{bad}");
        }
        assert_eq!(key_name(" CI für B ").unwrap(), "CI für B");
        for bad in ["", " ", "a\nb", "\u{0}", &"a".repeat(129)] {
            assert!(key_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn passwords_have_a_length_and_administrators_no_tenant() {
        assert!(password("twelve chars").is_ok() && password("eleven char").is_err());
        assert!(password(&"x".repeat(1024)).is_ok() && password(&"x".repeat(1025)).is_err());
        for has_tenants in [false, true] {
            let tenant = |name, role| tenant(name, role, has_tenants);
            assert_eq!(tenant(None, Role::ServiceAdmin), Ok(None));
            assert_eq!(tenant(Some("a"), Role::Operator), Ok(Some("a".into())));
            assert!(tenant(Some("a"), Role::ServiceAdmin).is_err());
            assert!(tenant(Some(" "), Role::ReadOnly).is_err());
            assert_eq!(tenant(None, Role::Operator).is_err(), has_tenants);
            assert_eq!(tenant(None, Role::ReadOnly).is_err(), has_tenants);
        }
    }
}
