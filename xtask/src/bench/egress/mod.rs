//! `bench egress`: cost of the egress sidecar in network namespaces, compared with the same queries
//! and connections without one and, if `REFERENCE_EGRESS` names its program, with another sidecar.

mod connections;
mod dns;
mod internet;
mod namespace;
mod patches;
mod queries;
mod rows;
mod sidecar;
mod world;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::{
    connections::Connections,
    patches::Patches,
    queries::{Alone, Flow, Kind, Names},
    sidecar::Sidecar,
    world::World,
};
use super::{Options, footprint, report::Report, stats::Samples};
use crate::{
    host::{Installer, is_root},
    repo::Repo,
    step::notice,
};

/// Variable with the path of another sidecar's program.
const REFERENCE: &str = "REFERENCE_EGRESS";
/// Modes of the sidecar.
const MODES: [&str; 2] = ["dns", "dns+nft"];
/// Lengths of the policy.
const RULES: [u32; 3] = [10, 1_000, 10_000];

/// Queries one at a time, and handshakes, in each turn.
const PER_TURN: usize = 50;
/// Most queries for known names, and for refused ones.
const MOST_QUERIES: usize = 500_000;
/// Most queries for new names. Each opens an address, and sidecars have a limit of these.
const MOST_NEW: usize = 40_000;
/// Most queries for new names one at a time.
const MOST_NEW_ALONE: usize = 10_000;
/// Patches of the policy,
const PATCHES: usize = 1_000;
/// unless they take longer than this many loads.
const PATCH_TIME: u32 = 12;
/// Patches after the queries for new names.
const LATE_PATCHES: usize = 20;
/// Time for a sidecar to give memory back.
const REST: Duration = Duration::from_secs(1);

/// End of a series: as many, or after this time.
#[derive(Clone, Copy)]
struct Bound {
    count: usize,
    time: Duration,
}

/// Queries of one kind.
struct Queries {
    alone: Alone,
    flow: Flow,
}

/// What was measured of one sidecar in one mode with one policy.
struct Figures {
    /// Resident bytes before the first policy, with the policy, after all loads, and after the new
    /// names were refused.
    resident: [u64; 4],
    /// Until the API has answered to the policy.
    replaced: Samples,
    known: Queries,
    new: Queries,
    denied: Flow,
    /// The queries for known names without a sidecar.
    direct: Flow,
    patches: Patches,
    /// The same after the queries for new names, whose addresses are open.
    late_patches: Patches,
    /// The patch that refuses the new names, until the API has answered.
    closed: Samples,
    connections: Connections,
}

/// Measures our sidecar and the reference, in turns for each mode and policy.
pub(super) async fn measure(
    repo: &Repo,
    installer: &Installer,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    ensure!(
        is_root(),
        "run the bench of the egress sidecar as root: it makes network namespaces"
    );
    installer.program("ip", &["iproute2"])?;
    installer.program("nft", &["nftables"])?;
    let reference = reference(installer)?;
    let logs = repo.reports().join("bench-egress");
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let program = repo.dist().join("egress");
    for mode in MODES {
        for rules in RULES {
            let name = format!("{mode}, {rules} rules: ");
            eprintln!("    {name}egress");
            let log = logs.join("egress.log");
            let ours = figures(&program, mode, rules, &log, options)
                .await
                .with_context(|| format!("{name}egress"))?;
            let theirs = match &reference {
                None => None,
                Some(program) => {
                    eprintln!("    {name}the reference");
                    let log = logs.join("reference.log");
                    let theirs = figures(program, mode, rules, &log, options).await;
                    Some(theirs.with_context(|| format!("{name}the reference"))?)
                }
            };
            rows::show(&name, &ours, theirs.as_ref(), report);
        }
    }
    footprint::on_disk(repo, "egress", report)?;
    if let Some(program) = &reference {
        report.bytes("reference: on disk", fs::metadata(program)?.len());
    }
    Ok(())
}

/// Path of the reference's program, if one is named.
fn reference(installer: &Installer) -> Result<Option<PathBuf>> {
    let Some(program) = std::env::var_os(REFERENCE).filter(|path| !path.is_empty()) else {
        notice(&format!("not measured: another sidecar; set {REFERENCE}"));
        return Ok(None);
    };
    let program = fs::canonicalize(&program)
        .with_context(|| format!("{REFERENCE} = {} is no program", program.display()))?;
    // Ours does without it.
    installer.program("iptables", &["iptables"])?;
    Ok(Some(program))
}

/// Measures a sidecar that runs in namespaces of its own.
async fn figures(
    program: &Path,
    mode: &str,
    rules: u32,
    log: &Path,
    options: &Options,
) -> Result<Figures> {
    let time = Duration::from_secs(options.seconds);
    let bound = |count| Bound { count, time };
    let few = options.turns.saturating_mul(PER_TURN);
    let world = World::new()?;
    let sidecar = Sidecar::start(program, &world, mode, log)?;
    let at_rest = sidecar.resident()?;

    let mut api = sidecar.connect(&world).await?;
    let start = Instant::now();
    api.call("PUT", "/policy", Some(&policy(rules))).await?;
    let mut replaced = Samples::default();
    replaced.add(start.elapsed());
    let with_rules = sidecar.resident()?;

    queries::learn(&world)?;
    let mut names = Names::new(Kind::Known);
    let known = Queries {
        alone: queries::alone(&world, &mut names, bound(few))?,
        flow: sidecar.flow(&world, &mut names, bound(MOST_QUERIES))?,
    };
    let direct = queries::flow(&world.plain, &mut names, bound(MOST_QUERIES))?;

    // A connection that was idle for long may have been closed.
    let mut api = sidecar.connect(&world).await?;
    let limit = Bound {
        count: PATCHES,
        time: time * PATCH_TIME,
    };
    let patches = patches::measure(&world, &mut api, limit).await?;
    // A change of the policy may have closed what was learned.
    queries::learn(&world)?;
    let connections = connections::measure(&world, bound(few))?;

    let mut names = Names::new(Kind::New);
    let new = Queries {
        alone: queries::alone(&world, &mut names, bound(few.min(MOST_NEW_ALONE)))?,
        flow: sidecar.flow(&world, &mut names, bound(MOST_NEW))?,
    };
    let mut api = sidecar.connect(&world).await?;
    let late_patches = patches::measure(&world, &mut api, bound(LATE_PATCHES)).await?;
    let mut names = Names::new(Kind::Denied);
    let denied = sidecar.flow(&world, &mut names, bound(MOST_QUERIES))?;
    let loaded = sidecar.resident()?;
    let mut api = sidecar.connect(&world).await?;
    let closed = patches::close(&world, &mut api).await?;
    tokio::time::sleep(REST).await;
    Ok(Figures {
        resident: [at_rest, with_rules, loaded, sidecar.resident()?],
        replaced,
        known,
        new,
        denied,
        direct,
        patches,
        late_patches,
        closed,
        connections,
    })
}

/// A policy that allows the names of the bench by its last two rules. Of the others, a quarter each
/// refuses a name, allows a name, allows all names of a zone, and allows a network.
fn policy(rules: u32) -> Value {
    let others = (0..rules.saturating_sub(2)).map(|number| match number % 4 {
        0 => ("deny", format!("host-{number}.refused.example")),
        1 => ("allow", format!("host-{number}.allowed.example")),
        2 => ("allow", format!("*.zone-{number}.example")),
        _ => {
            // 60.0.0.0 to 60.255.255.0
            let (high, low) = (number / 256 % 256, number % 256);
            ("allow", format!("60.{high}.{low}.0/24"))
        }
    });
    let ours =
        ["*.known.bench.example", "*.new.bench.example"].map(|target| ("allow", target.to_owned()));
    let rules: Vec<Value> = others
        .chain(ours)
        .map(|(action, target)| json!({ "action": action, "target": target }))
        .collect();
    json!({ "defaultAction": "deny", "egress": rules })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Longest body that the API of a sidecar accepts.
    const BODY: usize = 1 << 20;

    #[test]
    fn policies_have_as_many_different_rules_as_asked_for_and_fit_into_a_request() {
        for rules in RULES {
            let policy = policy(rules);
            let list = policy["egress"].as_array().unwrap();
            let targets: HashSet<&str> = list
                .iter()
                .filter_map(|rule| rule["target"].as_str())
                .collect();
            assert_eq!(targets.len(), usize::try_from(rules).unwrap());
            assert!(policy.to_string().len() <= BODY);
        }
    }
}
