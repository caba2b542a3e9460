//! What is recorded of one sandbox's resource use.
//!
//! A sample is about the time since the one before it. Samples within ten seconds become one point
//! of the fine series, and the points of a minute one of the coarse series.

use osb_protocol::SandboxId;
use osb_runtime::Usage;
use osb_store::MetricStretch;

use super::series::{Point, Sample, Series};

/// Seconds of a fine point.
pub(super) const FINE_STEP: i64 = 10;
/// Fine points: an hour.
const FINE_POINTS: usize = 360;
/// Fine points that are stored together: ten minutes.
const FINE_STRETCH: i64 = 60;
/// Seconds of a coarse point.
pub(super) const COARSE_STEP: i64 = 60;
/// Coarse points: a day.
const COARSE_POINTS: usize = 1440;
/// Coarse points that are stored together: two hours.
const COARSE_STRETCH: i64 = 120;
/// Fewest new coarse points that are written: ten minutes. Until then they follow from the fine ones,
/// which are written each minute; a stretch is written as a whole, so fewer writes cost less.
const COARSE_BATCH: i64 = 10;
/// Longest time between the start of a container and the first sample from which its counters still
/// show a rate, in microseconds.
const FRESH_US: i64 = 20_000_000;

/// Most samples of a point: two for each of its seconds.
const FORMING_MAX: usize = 20;

/// The recorded use of one sandbox.
#[derive(Debug)]
pub(super) struct Recording {
    /// The counters that were read last, and when, in Unix microseconds.
    last: Option<(i64, Usage)>,
    /// The use between the last two.
    latest: Sample,
    /// Samples of the fine point that is being formed, and its slot.
    forming: Vec<Point>,
    slot: i64,
    fine: Track,
    coarse: Track,
}

/// A series and how much of it is stored.
#[derive(Debug)]
struct Track {
    series: Series,
    /// Points of a stored stretch.
    stretch: i64,
    /// Stretches of a sandbox in the store.
    places: i64,
    /// First slot that is not stored.
    unstored: i64,
}

/// What a call of [`Recording::stretches`] covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered {
    fine: i64,
    coarse: i64,
}

impl Recording {
    pub(super) fn new() -> Self {
        Self {
            last: None,
            latest: Sample::default(),
            forming: Vec::new(),
            slot: 0,
            fine: Track::new(FINE_STEP, FINE_POINTS, FINE_STRETCH),
            coarse: Track::new(COARSE_STEP, COARSE_POINTS, COARSE_STRETCH),
        }
    }

    /// Restores what is stored, by step and start.
    pub(super) fn restore(stored: &[MetricStretch]) -> Self {
        let mut recording = Self::new();
        for stretch in stored {
            let step = i64::from(stretch.step);
            let track = match step {
                FINE_STEP => &mut recording.fine,
                COARSE_STEP => &mut recording.coarse,
                _ => continue,
            };
            let points = stretch.points.chunks(Point::BYTES);
            for (slot, point) in (stretch.start.div_euclid(step)..).zip(points) {
                if let Some(point) = Point::decode(point) {
                    track.series.push(slot, point);
                }
            }
            track.unstored = track.series.next_slot();
        }
        recording.derive_coarse();
        recording.slot = recording.fine.series.next_slot() - 1;
        recording
    }

    /// Adds the coarse points of whole minutes that only fine points are stored of.
    fn derive_coarse(&mut self) {
        let slots = COARSE_STEP / FINE_STEP;
        let (oldest, _) = self.fine.series.range(i64::MIN, i64::MIN);
        let first = oldest.div_euclid(slots);
        let first = first.max(self.coarse.series.next_slot());
        for minute in first..self.fine.series.next_slot().div_euclid(slots) {
            self.add_minute(minute);
        }
    }

    /// Adds the coarse point of a minute.
    fn add_minute(&mut self, minute: i64) {
        let slots = COARSE_STEP / FINE_STEP;
        let fine = &self.fine.series;
        let (_, points) = fine.range(minute * slots, (minute + 1) * slots);
        self.coarse.series.push(minute, Point::mean(&points));
    }

    /// Adds what was read at `at_us`; returns the use since the sample before. `started_us` is when the
    /// container was started, if that is known.
    pub(super) fn add(&mut self, at_us: i64, usage: Usage, started_us: Option<i64>) -> Sample {
        let fresh = started_us.filter(|started| at_us - started < FRESH_US);
        let before = self.last.or_else(|| Some((fresh?, at_start(&usage))));
        let sample = sample(at_us, &usage, before);
        // The clock may have been set back.
        let earlier = before.filter(|(before, _)| *before <= at_us);
        let middle = earlier.map_or(at_us, |(before, _)| before.midpoint(at_us));
        let slot = middle.div_euclid(FINE_STEP * 1_000_000);
        self.last = Some((at_us, usage));
        self.latest = sample;
        if slot > self.slot {
            self.form();
            self.slot = slot;
        } else if slot < self.slot - 1 {
            self.go_back(slot);
        }
        if self.forming.len() < FORMING_MAX {
            self.forming.push(sample.into());
        }
        self.settle(at_us);
        sample
    }

    /// The use that was sampled last.
    pub(super) fn latest(&self) -> Sample {
        self.latest
    }

    /// Completes the points whose time is over.
    pub(super) fn settle(&mut self, at_us: i64) {
        let seconds = at_us.div_euclid(1_000_000);
        if self.slot < seconds.div_euclid(FINE_STEP) {
            self.form();
        }
        let fine = &self.fine.series;
        if fine.is_empty() {
            return;
        }
        let slots = COARSE_STEP / FINE_STEP;
        let (oldest, _) = fine.range(i64::MIN, i64::MIN);
        let end = (fine.next_slot() - 1).div_euclid(slots) + 1;
        let mut first = oldest.div_euclid(slots);
        if !self.coarse.series.is_empty() {
            first = first.max(self.coarse.series.next_slot());
        }
        // More than one when the last point of a minute comes late, with the first of the next one.
        for minute in first..end.min(seconds.div_euclid(COARSE_STEP)) {
            self.add_minute(minute);
        }
    }

    /// Goes on from an earlier slot after the clock was set back: points of later times than now would
    /// keep new ones out until the clock reaches them again.
    fn go_back(&mut self, slot: i64) {
        self.forming.clear();
        self.slot = slot;
        let minute = slot.div_euclid(COARSE_STEP / FINE_STEP);
        for (track, slot) in [(&mut self.fine, slot), (&mut self.coarse, minute)] {
            track.series.truncate(slot);
            track.unstored = track.unstored.min(slot);
        }
    }

    fn form(&mut self) {
        if !self.forming.is_empty() {
            let point = Point::mean(&self.forming);
            self.fine.series.push(self.slot, point);
            self.forming.clear();
        }
    }

    /// The points that are to be stored, in whole stretches; all of them once the sandbox has ended.
    pub(super) fn stretches(
        &self,
        id: &SandboxId,
        written_at: i64,
        has_ended: bool,
        into: &mut Vec<MetricStretch>,
    ) -> Covered {
        self.fine.stretches(id, written_at, into);
        let new = self.coarse.series.next_slot() - self.coarse.unstored;
        let is_worth_it = has_ended || new >= COARSE_BATCH;
        if is_worth_it {
            self.coarse.stretches(id, written_at, into);
        }
        Covered {
            fine: self.fine.series.next_slot(),
            coarse: match is_worth_it {
                true => self.coarse.series.next_slot(),
                false => self.coarse.unstored,
            },
        }
    }

    /// Notes that these points are stored.
    pub(super) fn set_stored(&mut self, covered: Covered) {
        // The clock may have been set back since.
        self.fine.unstored = covered.fine.min(self.fine.series.next_slot());
        self.coarse.unstored = covered.coarse.min(self.coarse.series.next_slot());
    }

    /// The last samples at [`FINE_STEP`], up to this many; the latest one is the last.
    pub(super) fn last(&self, count: usize) -> Vec<Sample> {
        let series = &self.fine.series;
        let before = i64::try_from(count.saturating_sub(1)).unwrap_or_default();
        let (end, latest) = (series.next_slot(), self.latest);
        let (_, points) = series.range(end - before, end);
        let samples = points.into_iter().map(Sample::from);
        samples.chain([latest]).collect()
    }

    /// The samples of a step of [`FINE_STEP`] or [`COARSE_STEP`], and the Unix seconds of the first.
    pub(super) fn samples(&self, step: i64) -> (i64, Vec<Sample>) {
        let series = match step {
            FINE_STEP => &self.fine.series,
            _ => &self.coarse.series,
        };
        let (first, points) = series.range(i64::MIN, i64::MAX);
        let samples = points.into_iter().map(Sample::from);
        (first * series.step(), samples.collect())
    }
}

impl Track {
    fn new(step: i64, most: usize, stretch: i64) -> Self {
        let points = i64::try_from(most).unwrap_or(i64::MAX);
        Self {
            series: Series::new(step, most),
            stretch,
            // The oldest stretch may still be needed in part when a new one begins.
            places: points / stretch + 1,
            unstored: 0,
        }
    }

    fn stretches(&self, id: &SandboxId, written_at: i64, into: &mut Vec<MetricStretch>) {
        let (mut slot, end) = (self.unstored, self.series.next_slot());
        let (oldest, _) = self.series.range(i64::MIN, i64::MIN);
        slot = slot.max(oldest);
        while slot < end {
            let number = slot.div_euclid(self.stretch);
            let next = (number + 1) * self.stretch;
            let (first, points) = self.series.range(number * self.stretch, next);
            let mut bytes = Vec::with_capacity(points.len() * Point::BYTES);
            for point in points {
                point.encode(&mut bytes);
            }
            into.push(MetricStretch {
                id: id.clone(),
                step: u32::try_from(self.series.step()).unwrap_or_default(),
                place: u32::try_from(number.rem_euclid(self.places)).unwrap_or_default(),
                start: first * self.series.step(),
                written_at,
                points: bytes,
            });
            slot = next;
        }
    }
}

/// The counters of a container that has just been started.
fn at_start(usage: &Usage) -> Usage {
    Usage {
        received_bytes: usage.received_bytes.map(|_| 0),
        sent_bytes: usage.sent_bytes.map(|_| 0),
        read_bytes: usage.read_bytes.map(|_| 0),
        written_bytes: usage.written_bytes.map(|_| 0),
        ..Usage::default()
    }
}

fn sample(at_us: i64, usage: &Usage, before: Option<(i64, Usage)>) -> Sample {
    let memory = Sample {
        memory_bytes: Some(usage.memory_bytes),
        processes: Some(usage.processes),
        ..Sample::default()
    };
    let Some((before_us, before)) = before else {
        return memory;
    };
    let Some(elapsed_us) = u64::try_from(at_us - before_us).ok().filter(|us| *us > 0) else {
        return memory;
    };
    // A counter that fell belongs to another start of the container.
    let rate = |now: Option<u64>, before: Option<u64>| {
        let counted = u128::from(now?.checked_sub(before?)?);
        u64::try_from(counted * 1_000_000 / u128::from(elapsed_us)).ok()
    };
    let cpu = rate(Some(usage.cpu_ns), Some(before.cpu_ns));
    #[expect(clippy::cast_precision_loss, reason = "a few billion per core")]
    let cpu_cores = cpu.map(|ns_per_second| ns_per_second as f64 / 1e9);
    Sample {
        cpu_cores,
        received: rate(usage.received_bytes, before.received_bytes),
        sent: rate(usage.sent_bytes, before.sent_bytes),
        read: rate(usage.read_bytes, before.read_bytes),
        written: rate(usage.written_bytes, before.written_bytes),
        ..memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_samples_end_with_the_latest() {
        let mut recording = Recording::new();
        for step in 0..40 {
            let at = START + step * FINE_STEP;
            recording.add(at * SECOND, usage(step * FINE_STEP), None);
        }
        let last = recording.last(5);
        assert_eq!(last.len(), 5);
        assert!(last.iter().all(|sample| sample.cpu_cores == Some(0.5)));
        assert_eq!(last[4], recording.latest());
        assert_eq!(recording.last(100).len(), 40);
        assert_eq!(Recording::new().last(5).len(), 1, "nothing is known yet");
    }

    const SECOND: i64 = 1_000_000;
    /// A multiple of the longest stretch.
    const START: i64 = 2_000_160_000;

    /// The use of a program that takes a half core and receives 100 bytes per second.
    fn usage(seconds: i64) -> Usage {
        let seconds = u64::try_from(seconds).unwrap();
        Usage {
            cpu_ns: seconds * 500_000_000,
            memory_bytes: 8 << 20,
            processes: 2,
            received_bytes: Some(seconds * 100),
            ..Usage::default()
        }
    }

    fn recorded(every: i64, seconds: i64) -> Recording {
        let mut recording = Recording::new();
        for second in (0..=seconds).step_by(usize::try_from(every).unwrap()) {
            let at = (START + second) * SECOND;
            recording.add(at, usage(second), Some(START * SECOND));
        }
        recording
    }

    #[test]
    fn samples_become_points_of_both_steps() {
        for every in [1, 10] {
            let recording = recorded(every, 125);
            let (start, fine) = recording.samples(FINE_STEP);
            assert_eq!((start, fine.len()), (START, 12), "every {every} s");
            assert!(
                fine[1..].iter().all(|it| it.cpu_cores == Some(0.5)),
                "{fine:?}"
            );
            assert!(fine.iter().all(|it| it.memory_bytes == Some(8 << 20)));
            assert_eq!(fine[3].received, Some(100));
            assert_eq!(fine[3].read, None);
            let (start, coarse) = recording.samples(COARSE_STEP);
            assert_eq!((start, coarse.len()), (START, 2));
            assert_eq!(coarse[1].cpu_cores, Some(0.5));
        }
    }

    #[test]
    fn the_first_sample_of_an_old_container_has_no_rate() {
        let mut recording = Recording::new();
        let first = recording.add(START * SECOND, usage(500), Some((START - 500) * SECOND));
        assert_eq!((first.cpu_cores, first.processes), (None, Some(2)));
        let second = recording.add((START + 10) * SECOND, usage(510), None);
        assert_eq!(second.cpu_cores, Some(0.5));
        let restarted = recording.add((START + 20) * SECOND, usage(1), None);
        assert_eq!(restarted.cpu_cores, None, "counters fell");
        let mut fresh = Recording::new();
        let first = fresh.add((START + 5) * SECOND, usage(5), Some(START * SECOND));
        assert_eq!(first.cpu_cores, Some(0.5), "since its start");
    }

    #[test]
    fn a_day_takes_at_most_50_kib() {
        let recording = recorded(10, 30 * 3600);
        let bytes = recording.fine.series.bytes() + recording.coarse.series.bytes();
        assert!(bytes + size_of::<Recording>() <= 50 << 10, "{bytes} bytes");
        assert_eq!(recording.samples(FINE_STEP).1.len(), FINE_POINTS);
        assert_eq!(recording.samples(COARSE_STEP).1.len(), COARSE_POINTS);
    }

    #[test]
    fn minutes_are_written_at_intervals_and_at_the_end() {
        let id = SandboxId::from("a");
        let mut recording = recorded(10, 125);
        let steps = |recording: &Recording, has_ended| {
            let mut rows = Vec::new();
            let covered = recording.stretches(&id, START, has_ended, &mut rows);
            let steps: Vec<u32> = rows.iter().map(|row| row.step).collect();
            (steps, covered)
        };
        let (first, covered) = steps(&recording, false);
        assert_eq!(first, [10, 60]);
        recording.set_stored(covered);
        let go_on = |recording: &mut Recording, from, to| {
            for second in (from..=to).step_by(10) {
                recording.add((START + second) * SECOND, usage(second), None);
            }
        };
        go_on(&mut recording, 130, 310);
        assert_eq!(recording.samples(COARSE_STEP).1.len(), 5);
        assert_eq!(steps(&recording, false).0, [10]);
        assert_eq!(steps(&recording, true).0, [10, 60], "it has ended");
        go_on(&mut recording, 320, 730);
        assert_eq!(
            steps(&recording, false).0,
            [10, 10, 60],
            "ten minutes later"
        );
    }

    #[test]
    fn what_is_stored_each_minute_restores_all_of_it() {
        let id = SandboxId::from("a");
        let mut store = std::collections::BTreeMap::new();
        let mut recording = Recording::new();
        let (mut written, mut bytes) = (0, 0);
        for minute in 0..(26 * 60) {
            for ten in 0..6 {
                let second = minute * 60 + ten * 10;
                recording.add((START + second) * SECOND, usage(second), None);
            }
            let mut stretches = Vec::new();
            let at = START + minute * 60;
            let covered = recording.stretches(&id, at, false, &mut stretches);
            bytes += stretches.iter().map(|it| it.points.len()).sum::<usize>();
            recording.set_stored(covered);
            written = written.max(stretches.len());
            for stretch in stretches {
                store.insert((stretch.step, stretch.place), stretch);
            }
        }
        assert!(written <= 4, "{written} rows in a minute");
        assert!(store.len() <= 20, "{} rows", store.len());
        let bytes = bytes / (26 * 60);
        assert!(bytes <= 1300, "{bytes} bytes of points in a minute");
        let mut rows: Vec<_> = store.into_values().collect();
        rows.sort_by_key(|row| (row.step, row.start));
        let restored = Recording::restore(&rows);
        for step in [FINE_STEP, COARSE_STEP] {
            assert_eq!(restored.samples(step), recording.samples(step), "{step}");
        }
        let mut none = Vec::new();
        restored.stretches(&id, 0, false, &mut none);
        assert_eq!(none, [], "enough of it is stored");
        restored.stretches(&id, 0, true, &mut none);
        assert!(none.len() <= 2, "{none:?}");
    }
    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_recording() {
        let id = SandboxId::from("a");
        let mut recording = recorded(10, 1800);
        let mut rows = Vec::new();
        let covered = recording.stretches(&id, START, true, &mut rows);
        recording.set_stored(covered);
        // 20 minutes back, and for 5 minutes on.
        let mut most = 0;
        for second in (600..=900).step_by(1) {
            let counted = usage(second + 1210);
            recording.add((START + second) * SECOND, counted, None);
            most = most.max(recording.forming.len());
        }
        assert!(most <= FORMING_MAX, "{most} samples are held");
        let (start, fine) = recording.samples(FINE_STEP);
        let end = start + FINE_STEP * i64::try_from(fine.len()).unwrap();
        assert_eq!((start, end), (START, START + 900));
        assert_eq!(fine.last().unwrap().cpu_cores, Some(0.5));
        let (start, coarse) = recording.samples(COARSE_STEP);
        assert_eq!((start, coarse.len()), (START, 15));
        let mut rows = Vec::new();
        recording.stretches(&id, START, true, &mut rows);
        assert!(rows.iter().any(|row| row.step == 10), "{rows:?}");
    }

    #[test]
    fn a_step_back_within_a_point_keeps_what_is_recorded() {
        let mut recording = recorded(10, 125);
        recording.add((START + 112) * SECOND, usage(126), None);
        recording.add((START + 141) * SECOND, usage(141), None);
        let (start, fine) = recording.samples(FINE_STEP);
        assert_eq!((start, fine[3].received), (START, Some(100)));
        assert!(fine.len() >= 12, "{fine:?}");
    }

    #[test]
    fn minutes_that_end_together_are_all_added() {
        let mut recording = recorded(10, 50);
        // Nothing was read for three minutes.
        for second in (240..=310).step_by(10) {
            recording.add((START + second) * SECOND, usage(second), None);
        }
        let (start, coarse) = recording.samples(COARSE_STEP);
        assert_eq!((start, coarse.len()), (START, 5));
        assert_eq!(coarse[0].memory_bytes, Some(8 << 20), "{coarse:?}");
    }
}
