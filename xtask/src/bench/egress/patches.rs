//! Changes of the policy over the API.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    Bound,
    dns::{self, Outcome},
    queries::{ask, client},
    world::World,
};
use crate::bench::{http::Connection, stats::Samples};

/// Name that is allowed and refused in turns, so that the policy keeps its length.
const NAME: &str = "n1.patched.bench.example";
/// All names of the queries for new ones, and one of them.
const NEW_NAMES: &str = "*.new.bench.example";
const NEW: &str = "n100.new.bench.example";
/// Longest time until a change is in effect.
const EFFECT: Duration = Duration::from_secs(60);

/// What changes of the policy took.
#[derive(Default)]
pub(super) struct Patches {
    /// Until the API answered.
    pub(super) answered: Samples,
    /// Until a query, sent after that answer, showed the change: a refused name has an address, or
    /// an allowed one is refused.
    pub(super) in_effect: Samples,
}

/// Sends patches one after the other.
pub(super) async fn measure(world: &World, api: &mut Connection, bound: Bound) -> Result<Patches> {
    let socket = client(&world.sandbox)?;
    let mut query = Vec::new();
    let mut id: u16 = 0;
    let mut look = || {
        id = id.wrapping_add(1);
        dns::query(id, NAME, &mut query);
        ask(&socket, &query)
    };
    ensure!(
        look()? == Some(Outcome::Refused),
        "{NAME} is not refused before the first patch"
    );
    let mut patches = Patches::default();
    let begin = Instant::now();
    for turn in 0..bound.count {
        let is_refused = turn.is_multiple_of(2);
        // The name is refused again at the end.
        if is_refused && begin.elapsed() > bound.time {
            break;
        }
        let (action, expected) = match is_refused {
            true => ("allow", Outcome::Address),
            false => ("deny", Outcome::Refused),
        };
        let patch = json!([{ "action": action, "target": NAME }]);
        let start = Instant::now();
        api.call("PATCH", "/policy", Some(&patch)).await?;
        patches.answered.add(start.elapsed());
        while look()? != Some(expected) {
            ensure!(
                start.elapsed() < EFFECT,
                "a patch is not in effect after {EFFECT:?}"
            );
        }
        patches.in_effect.add(start.elapsed());
    }
    Ok(patches)
}

/// Refuses the new names, whose addresses are open. Returns the time until the API has answered.
pub(super) async fn close(world: &World, api: &mut Connection) -> Result<Samples> {
    let socket = client(&world.sandbox)?;
    let mut query = Vec::new();
    dns::query(1, NEW, &mut query);
    ensure!(
        ask(&socket, &query)? == Some(Outcome::Address),
        "{NEW} is not allowed before it is refused"
    );
    let patch = json!([{ "action": "deny", "target": NEW_NAMES }]);
    let mut answered = Samples::default();
    let start = Instant::now();
    api.call("PATCH", "/policy", Some(&patch)).await?;
    answered.add(start.elapsed());
    ensure!(
        ask(&socket, &query)? == Some(Outcome::Refused),
        "{NEW} is allowed after it was refused"
    );
    Ok(answered)
}
