//! Samples of one sandbox at a fixed step, in a bounded ring.

use std::collections::VecDeque;

/// A number that is not known.
const UNKNOWN: u32 = u32::MAX;
/// Points by which a series grows.
const GROWTH: usize = 60;

/// Resource use over one step. Rates are per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Thousandths of a core.
    cpu_millis: u32,
    memory_kib: u32,
    received: u32,
    sent: u32,
    read: u32,
    written: u32,
    processes: u32,
}

/// The numbers of a [`Point`], in the units of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Cores in use.
    pub cpu_cores: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Bytes received from the network per second.
    pub received: Option<u64>,
    /// Bytes sent to the network per second.
    pub sent: Option<u64>,
    /// Bytes read from disks per second.
    pub read: Option<u64>,
    /// Bytes written to disks per second.
    pub written: Option<u64>,
}

impl Point {
    /// Bytes of a stored point.
    pub(super) const BYTES: usize = 28;
    /// A step in which nothing was read.
    const NONE: Self = Self::of([UNKNOWN; 7]);

    const fn of(numbers: [u32; 7]) -> Self {
        let [
            cpu_millis,
            memory_kib,
            received,
            sent,
            read,
            written,
            processes,
        ] = numbers;
        Self {
            cpu_millis,
            memory_kib,
            received,
            sent,
            read,
            written,
            processes,
        }
    }

    fn numbers(&self) -> [u32; 7] {
        [
            self.cpu_millis,
            self.memory_kib,
            self.received,
            self.sent,
            self.read,
            self.written,
            self.processes,
        ]
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        for number in self.numbers() {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads a stored point. `None` for other than [`Self::BYTES`] bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let numbers = <[[u8; 4]; 7]>::try_from(words).ok()?;
        rest.is_empty()
            .then(|| Self::of(numbers.map(u32::from_le_bytes)))
    }

    /// The mean of points, each number over the points that have it.
    pub(super) fn mean(points: &[Self]) -> Self {
        let mut means = [UNKNOWN; 7];
        for (index, mean) in means.iter_mut().enumerate() {
            let known = points.iter().map(|point| point.numbers()[index]);
            let known = known.filter(|number| *number != UNKNOWN);
            let (mut sum, mut count) = (0_u64, 0);
            for number in known {
                sum += u64::from(number);
                count += 1;
            }
            if let Some(number) = sum.checked_div(count) {
                *mean = stored(number);
            }
        }
        Self::of(means)
    }
}

/// Larger numbers than fit are stored as the largest that does.
fn stored(number: u64) -> u32 {
    u32::try_from(number).map_or(UNKNOWN - 1, |number| number.min(UNKNOWN - 1))
}

impl From<Sample> for Point {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of cores is small and not negative; conversions saturate"
    )]
    fn from(sample: Sample) -> Self {
        let whole = |number: Option<u64>| number.map_or(UNKNOWN, stored);
        let cpu = sample
            .cpu_cores
            .map(|cores| (cores * 1000.0).round() as u64);
        Self {
            cpu_millis: whole(cpu),
            memory_kib: whole(sample.memory_bytes.map(|bytes| bytes >> 10)),
            received: whole(sample.received),
            sent: whole(sample.sent),
            read: whole(sample.read),
            written: whole(sample.written),
            processes: whole(sample.processes),
        }
    }
}

impl From<Point> for Sample {
    fn from(point: Point) -> Self {
        let known = |number: u32| (number != UNKNOWN).then_some(number);
        let whole = |number: u32| known(number).map(u64::from);
        Self {
            cpu_cores: known(point.cpu_millis).map(|millis| f64::from(millis) / 1000.0),
            memory_bytes: whole(point.memory_kib).map(|kib| kib << 10),
            processes: whole(point.processes),
            received: whole(point.received),
            sent: whole(point.sent),
            read: whole(point.read),
            written: whole(point.written),
        }
    }
}

/// Consecutive points, the oldest of which go first. Times are slots: multiples of the step.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Seconds of a slot.
    step: i64,
    /// Most points.
    most: usize,
    /// Slot of the first point.
    first: i64,
    points: VecDeque<Point>,
}

impl Series {
    pub(super) fn new(step: i64, most: usize) -> Self {
        Self {
            step,
            most,
            first: 0,
            points: VecDeque::new(),
        }
    }

    pub(super) fn step(&self) -> i64 {
        self.step
    }

    /// Adds the point of a slot. Slots without a point become gaps; a point of an earlier slot than
    /// the last is ignored.
    pub(super) fn push(&mut self, slot: i64, point: Point) {
        let next = self.next_slot();
        let gap = usize::try_from(slot - next);
        match (self.points.is_empty(), gap) {
            (true, _) => self.first = slot,
            (false, Err(_)) => return,
            (false, Ok(gap)) if gap >= self.most => {
                self.points.clear();
                self.first = slot;
            }
            (false, Ok(gap)) => {
                for _ in 0..gap {
                    self.append(Point::NONE);
                }
            }
        }
        self.append(point);
    }

    fn append(&mut self, point: Point) {
        if self.points.len() == self.most {
            self.points.pop_front();
            self.first += 1;
        }
        // By itself it would double, up to twice of what is needed.
        if self.points.len() == self.points.capacity() {
            let more = GROWTH.min(self.most - self.points.len()).max(1);
            self.points.reserve_exact(more);
        }
        self.points.push_back(point);
    }

    /// Removes the points of this slot and later ones.
    pub(super) fn truncate(&mut self, slot: i64) {
        let kept = usize::try_from(slot - self.first).unwrap_or_default();
        self.points.truncate(kept);
    }

    /// The slot after the last point.
    pub(super) fn next_slot(&self) -> i64 {
        self.first + i64::try_from(self.points.len()).unwrap_or(i64::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The points of slots from `from` to before `to`, and the slot of the first of them.
    pub(super) fn range(&self, from: i64, to: i64) -> (i64, Vec<Point>) {
        let from = from.clamp(self.first, self.next_slot());
        let to = to.clamp(from, self.next_slot());
        let index = |slot: i64| usize::try_from(slot - self.first).unwrap_or_default();
        let points = self.points.range(index(from)..index(to));
        (from, points.copied().collect())
    }

    /// Memory that the points take, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<Point>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(cpu_millis: u32) -> Point {
        Point {
            cpu_millis,
            ..Point::NONE
        }
    }

    fn cores(series: &Series) -> Vec<Option<f64>> {
        let (_, points) = series.range(i64::MIN, i64::MAX);
        let cores = points.into_iter().map(|it| Sample::from(it).cpu_cores);
        cores.collect()
    }

    #[test]
    fn gaps_are_kept_and_the_oldest_points_go_first() {
        let mut series = Series::new(10, 4);
        series.push(100, point(1000));
        series.push(102, point(3000));
        assert_eq!(cores(&series), [Some(1.0), None, Some(3.0)]);
        series.push(102, point(9000));
        series.push(90, point(9000));
        assert_eq!(cores(&series), [Some(1.0), None, Some(3.0)]);
        series.push(105, point(6000));
        assert_eq!(cores(&series), [Some(3.0), None, None, Some(6.0)]);
        assert_eq!(series.range(103, 200).0, 103);
        assert_eq!(series.range(105, 106).1, [point(6000)]);
        series.push(1000, point(7000));
        assert_eq!(cores(&series), [Some(7.0)]);
        assert_eq!(series.range(i64::MIN, i64::MAX).0, 1000);
    }

    #[test]
    fn a_sample_survives_its_stored_form() {
        let sample = Sample {
            cpu_cores: Some(1.25),
            memory_bytes: Some(5 << 20),
            processes: Some(7),
            received: Some(1 << 40),
            sent: Some(0),
            read: None,
            written: Some(9),
        };
        let mut bytes = Vec::new();
        Point::from(sample).encode(&mut bytes);
        assert_eq!(bytes.len(), Point::BYTES);
        let read = Sample::from(Point::decode(&bytes).unwrap());
        let largest = Some(u64::from(u32::MAX - 1));
        assert_eq!(
            read,
            Sample {
                received: largest,
                ..sample
            }
        );
        assert_eq!(Point::decode(&bytes[1..]), None);
    }

    #[test]
    fn a_mean_is_over_the_known_numbers() {
        let mean = Point::mean(&[point(100), Point::NONE, point(300)]);
        assert_eq!(mean, point(200));
        assert_eq!(Point::mean(&[]), Point::NONE);
    }
}
