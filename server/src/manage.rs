//! `opensandbox-server user …` and `key …`: users and API keys on the configured store, whether or not a
//! server uses it.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    sync::Arc,
};

use anyhow::{Context, bail};
use osb_protocol::{
    WireTime,
    identity::{ApiKey, NewApiKey, NewUser, User},
};
use osb_store::{Location, Store};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    cli::{KeyCommand, UserCommand},
    identity::accounts::{Accounts, UserEdit, in_seconds},
};

/// Seconds of a day.
const DAY: i64 = 24 * 3600;

/// Manages users.
///
/// # Errors
/// When the store cannot be used or a rule is broken.
pub async fn users(location: &Location, command: UserCommand) -> anyhow::Result<()> {
    let (store, accounts) = open(location).await?;
    let done = change_users(&accounts, command).await;
    store.close().await;
    done
}

/// Manages API keys.
///
/// # Errors
/// When the store cannot be used or a rule is broken.
pub async fn keys(location: &Location, command: KeyCommand) -> anyhow::Result<()> {
    let (store, accounts) = open(location).await?;
    let done = change_keys(&accounts, command).await;
    store.close().await;
    done
}

/// Opens the store beside its server or, where there is none yet or its schema is older, alone.
async fn open(location: &Location) -> anyhow::Result<(Arc<dyn Store>, Accounts)> {
    let store = match osb_store::open_shared(location).await? {
        Some(store) => store,
        None => osb_store::open(location).await.context(
            "the store has another schema than this release; use the release of the running server",
        )?,
    };
    let accounts = Accounts::open(Arc::clone(&store)).await?;
    Ok((store, accounts))
}

async fn change_users(accounts: &Accounts, command: UserCommand) -> anyhow::Result<()> {
    let find = |name: &str| {
        let id = accounts.user_id(name);
        id.with_context(|| format!("there is no user named {name}"))
    };
    match command {
        UserCommand::Add { name, role, tenant } => {
            let password = read_password()?.expose_secret().to_owned();
            let new = NewUser {
                name,
                password,
                role,
                tenant,
            };
            let user = accounts.add_user(new).await?;
            println!("added {} ({})", user.name, user.role);
        }
        UserCommand::Reset { name } => {
            let id = find(&name)?;
            let edit = UserEdit {
                password: Some(read_password()?),
                disabled: Some(false),
                ..UserEdit::default()
            };
            let user = accounts.change_user(&id, edit).await?;
            println!("{} has a new password", user.name);
        }
        UserCommand::Remove { name } => {
            accounts.delete_user(&find(&name)?).await?;
            println!("removed {name}");
        }
        UserCommand::List { json } => {
            let users = accounts.users();
            if json {
                println!("{}", serde_json::to_string_pretty(&users)?);
            } else {
                print!("{}", table(&USER_COLUMNS, users.iter().map(user_row)));
            }
        }
    }
    Ok(())
}

async fn change_keys(accounts: &Accounts, command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Add {
            name,
            role,
            tenant,
            days,
        } => {
            let expires_at = days.and_then(|days| in_seconds(i64::from(days) * DAY));
            let new = NewApiKey {
                name,
                role,
                tenant,
                expires_at,
            };
            let issued = accounts.add_key(new).await?;
            eprintln!(
                "key {} ({}); its secret is not shown again:",
                issued.key.id, issued.key.role
            );
            println!("{}", issued.secret);
        }
        KeyCommand::List { json } => {
            let keys = accounts.keys();
            if json {
                println!("{}", serde_json::to_string_pretty(&keys)?);
            } else {
                print!("{}", table(&KEY_COLUMNS, keys.iter().map(key_row)));
            }
        }
        KeyCommand::Revoke { key } => {
            let known = accounts.keys().into_iter();
            let named: Vec<_> = known
                .filter(|it| it.id == key || it.prefix == key)
                .collect();
            let [found] = &named[..] else {
                bail!("{} keys are named {key}; use the id", named.len());
            };
            accounts.revoke_key(&found.id).await?;
            println!("revoked {} ({})", found.name, found.id);
        }
    }
    Ok(())
}

const USER_COLUMNS: [&str; 5] = ["NAME", "ROLE", "TENANT", "STATE", "ID"];

fn user_row(user: &User) -> [String; 5] {
    let state = if user.disabled { "disabled" } else { "active" };
    [
        user.name.clone(),
        user.role.to_string(),
        user.tenant.clone().unwrap_or_else(|| "-".to_owned()),
        state.to_owned(),
        user.id.clone(),
    ]
}

const KEY_COLUMNS: [&str; 8] = [
    "PREFIX",
    "NAME",
    "ROLE",
    "TENANT",
    "EXPIRES",
    "LAST USED",
    "STATE",
    "ID",
];

fn key_row(key: &ApiKey) -> [String; 8] {
    let time = |time: Option<WireTime>| time.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let has_expired = key
        .expires_at
        .zip(in_seconds(0))
        .is_some_and(|(at, now)| at <= now);
    let state = match (key.revoked_at, has_expired) {
        (Some(_), _) => "revoked",
        (None, true) => "expired",
        (None, false) => "active",
    };
    [
        key.prefix.clone(),
        key.name.clone(),
        key.role.to_string(),
        key.tenant.clone().unwrap_or_else(|| "-".to_owned()),
        time(key.expires_at),
        time(key.last_used_at),
        state.to_owned(),
        key.id.clone(),
    ]
}

/// Rows under their headings, each column as wide as its widest cell.
fn table<const N: usize>(headings: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut lines = vec![headings.map(str::to_owned)];
    lines.extend(rows);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..N)
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Asks for a password twice on a terminal; otherwise reads the first line of standard input.
fn read_password() -> anyhow::Result<SecretString> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return read_line(&mut stdin.lock());
    }
    let ask = |prompt: &str| -> anyhow::Result<SecretString> {
        eprint!("{prompt}");
        io::stderr().flush()?;
        let _hidden = Hidden::start().context("cannot hide what is typed")?;
        let line = read_line(&mut io::stdin().lock());
        eprintln!();
        line
    };
    let password = ask("New password: ")?;
    if ask("Once more: ")?.expose_secret() != password.expose_secret() {
        bail!("the passwords differ");
    }
    Ok(password)
}

fn read_line(input: &mut impl BufRead) -> anyhow::Result<SecretString> {
    let mut line = String::new();
    if input
        .read_line(&mut line)
        .context("cannot read the password")?
        == 0
    {
        bail!("no password was given on standard input");
    }
    let length = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(length);
    Ok(line.into())
}

/// Keeps a terminal from showing what is typed, until it is dropped.
struct Hidden(Termios);

impl Hidden {
    fn start() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::identity::Role;

    use super::*;

    #[test]
    fn the_first_line_is_the_password() {
        let read = |text: &str| read_line(&mut text.as_bytes());
        let line = |text| read(text).unwrap().expose_secret().to_owned();
        assert_eq!(line("a b \r\nmore\n"), "a b ");
        assert_eq!(line("last"), "last");
        assert!(read("").is_err());
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            ["äö".to_owned(), "x".to_owned()],
            ["a".to_owned(), String::new()],
        ];
        assert_eq!(table(&["A", "B"], rows.into_iter()), "A   B\näö  x\na\n");
    }

    #[tokio::test]
    async fn keys_are_managed_on_a_store_that_no_server_has_made() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("new/s.db"));
        let add = |name: &str| KeyCommand::Add {
            name: name.into(),
            role: Role::ServiceAdmin,
            tenant: None,
            days: Some(30),
        };
        keys(&location, add("first")).await.unwrap();
        keys(&location, add("second")).await.unwrap();
        let (store, accounts) = open(&location).await.unwrap();
        let listed = accounts.keys();
        store.close().await;
        drop((store, accounts));
        assert_eq!(listed.len(), 2);
        assert!(listed.iter().all(|key| key.expires_at.is_some()));
        let revoke = |key: &str| KeyCommand::Revoke { key: key.into() };
        keys(&location, revoke(&listed[0].prefix)).await.unwrap();
        let refused = keys(&location, revoke("osb_none")).await.unwrap_err();
        assert!(refused.to_string().contains("0 keys"), "{refused}");
        let (store, accounts) = open(&location).await.unwrap();
        assert!(accounts.keys()[0].revoked_at.is_some());
        assert!(accounts.keys()[1].revoked_at.is_none());
        store.close().await;
    }
}
