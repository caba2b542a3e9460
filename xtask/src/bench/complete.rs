//! The server's own part of a create and a delete, over the simulated runtime, with everything on
//! and with the defaults in turns.

use std::time::Instant;

use anyhow::Result;

use super::{COMPLETE, Options, client::Client, report::Report, stats::Samples};

/// Creates in each turn.
const PER_TURN: usize = 20;

/// Measures creates and deletes of both servers.
pub(super) async fn measure(
    plain: &Client,
    complete: &Client,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let servers = [plain, complete];
    let mut created: [Samples; 2] = Default::default();
    let mut deleted: [Samples; 2] = Default::default();
    for _ in 0..options.turns {
        for (index, client) in servers.into_iter().enumerate() {
            let mut connection = client.connect().await?;
            let mut ids = Vec::with_capacity(PER_TURN);
            for _ in 0..PER_TURN {
                let start = Instant::now();
                ids.push(client.create(&mut connection).await?);
                created[index].add(start.elapsed());
            }
            for id in ids {
                let start = Instant::now();
                client.delete(&mut connection, &id).await?;
                deleted[index].add(start.elapsed());
            }
        }
    }
    for (name, [plain, complete]) in [
        ("create on the simulated runtime", &created),
        ("delete on the simulated runtime", &deleted),
    ] {
        report.compare(
            &format!("{COMPLETE}{name}"),
            complete.summary(),
            name,
            plain.summary(),
        );
    }
    Ok(())
}
