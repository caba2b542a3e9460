//! What is checked of the host below the runtime: its disk and its clock.

use osb_app::view::{Check, CheckState};
use osb_runtime::{DiskSpace, HostCapacity};

use crate::sandbox::ImageUse;

const GIB: u64 = 1 << 30;
/// Free space below which the next image or sandbox may not fit.
const LITTLE: u64 = 5 * GIB;
/// Free space below which sandboxes fail.
const NONE_LEFT: u64 = GIB / 4;
/// Difference of two clocks in milliseconds that the way to the engine explains.
const TOLERATED: i64 = 5_000;

/// Checks the host, as far as the runtime describes it. `now_ms` is this server's clock, when the
/// engine answered.
pub(super) fn of_host(host: &HostCapacity, now_ms: i64) -> Vec<Check> {
    let disk = host.disk.map(of_disk);
    let clock = host.clock_ms.map(|theirs| of_clock(theirs - now_ms));
    disk.into_iter().chain(clock).collect()
}

fn of_disk(disk: DiskSpace) -> Check {
    let DiskSpace { total, free } = disk;
    let (state, advice) = match free {
        ..NONE_LEFT => (
            CheckState::Bad,
            " Sandboxes fail and images cannot be pulled. Remove what is not used (docker system df, docker image prune), have the server do so ([image_gc]), or enlarge the disk.",
        ),
        NONE_LEFT..LITTLE => (
            CheckState::Note,
            " The next images may not fit. Remove those that are not used (docker image prune), have the server do so ([image_gc]), or enlarge the disk.",
        ),
        _ => (CheckState::Good, ""),
    };
    Check {
        name: "Disk".to_owned(),
        text: format!(
            "{} of {} are free for images and sandboxes.{advice}",
            size(free),
            size(total)
        ),
        state,
    }
}

/// Says what images take, and what of that could be freed.
pub(super) fn of_images(images: ImageUse) -> Check {
    let ImageUse {
        count,
        bytes,
        unused,
        unused_bytes,
        is_collected,
    } = images;
    let then = match (unused, is_collected) {
        (0, _) => "All of them are in use, or were made on the host.".to_owned(),
        (_, true) => format!(
            "Nothing uses {unused} of them, with {}: the server removes those that were not used for long ([image_gc]).",
            size(unused_bytes)
        ),
        (_, false) => format!(
            "Nothing uses {unused} of them, with {}, which could be pulled again: [image_gc] removes such images.",
            size(unused_bytes)
        ),
    };
    let sizes = size(bytes);
    Check {
        name: "Images".to_owned(),
        text: format!(
            "{count} on the engine take up to {sizes}; layers that several have count for each. {then}"
        ),
        state: CheckState::Good,
    }
}

/// `ahead_ms` is how far the engine's clock is ahead of the server's.
fn of_clock(ahead_ms: i64) -> Check {
    let seconds = ahead_ms.abs() / 1_000;
    let (state, text) = match ahead_ms.abs() {
        ..=TOLERATED => (
            CheckState::Good,
            "The clocks of the server and the engine agree.".to_owned(),
        ),
        _ => {
            let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
            let text = format!(
                "The engine's clock is {seconds} s {side} the server's. Expiries follow the server's clock, times of logs the engine's. Synchronise both (timedatectl set-ntp true)."
            );
            (CheckState::Note, text)
        }
    };
    Check {
        name: "Clock".to_owned(),
        text,
        state,
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        ..GIB => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes / GIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_wrong_clock_are_named_with_what_to_do() {
        let checks = |free, clock_ms| {
            let host = HostCapacity {
                disk: Some(DiskSpace {
                    total: 100 * GIB,
                    free,
                }),
                clock_ms: Some(clock_ms),
                ..HostCapacity::default()
            };
            of_host(&host, 1_000_000)
        };
        let good = checks(60 * GIB, 1_004_000);
        assert!(good.iter().all(|it| it.state == CheckState::Good));
        assert_eq!(
            good[0].text,
            "60 GiB of 100 GiB are free for images and sandboxes."
        );
        let little = &checks(4 * GIB, 1_090_000);
        assert_eq!(little[0].state, CheckState::Note);
        assert_eq!(little[1].state, CheckState::Note);
        assert!(
            little[1].text.contains("90 s ahead of"),
            "{}",
            little[1].text
        );
        let full = &checks(100 << 20, 900_000);
        assert_eq!(full[0].state, CheckState::Bad);
        assert!(
            full[0].text.starts_with("100 MiB of 100 GiB"),
            "{}",
            full[0].text
        );
        assert!(full[1].text.contains("100 s behind"), "{}", full[1].text);
        assert!(of_host(&HostCapacity::default(), 0).is_empty());
    }

    #[test]
    fn images_that_nothing_uses_are_named_with_what_removes_them() {
        let text = |unused: usize, is_collected: bool| {
            let images = ImageUse {
                count: 5,
                bytes: 3 << 30,
                unused,
                unused_bytes: 1 << 30,
                is_collected,
            };
            of_images(images).text
        };
        assert!(text(0, false).ends_with("made on the host."));
        assert!(text(2, false).contains("Nothing uses 2 of them, with 1 GiB, which could"));
        assert!(text(2, true).ends_with("not used for long ([image_gc])."));
        assert!(text(2, true).starts_with("5 on the engine take up to 3 GiB;"));
    }
}
