//! Set elements, written to the kernel by netlink from this process. A process per DNS answer would
//! cost milliseconds (contract: egress §16, 26).

use std::{ffi::CString, net::IpAddr, time::Duration};

use netlink_bindings::{
    nftables::{Chained, ChainedFinal, Nfgenmsg, Request},
    traits::NetlinkChained as _,
};

use super::{
    expression::Family,
    netlink::{ElementsError, Netlink, Transactions},
    ruleset::{Edition, FINGERPRINT, GENERATION, STAMP, TABLE},
};

/// Elements in one message. The length of its list is a 16-bit number.
const PER_MESSAGE: usize = 512;
/// `NFPROTO_INET`: tables of both families.
const INET: u8 = 1;
/// Subsystem that a batch is for (`NFNL_SUBSYS_NFTABLES`), in the header of the batch.
const NFTABLES: u16 = 10;
/// Keys of the map [`STAMP`]: `NFPROTO_IPV4` and `NFPROTO_IPV6`.
const PROTOCOLS: [u8; 2] = [2, 10];

/// One change, which takes effect at once or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Removes all elements.
    Flush(String),
    /// Adds addresses, each with its life unless the set has none. The life of an address that is
    /// there already begins anew.
    Add(String, Vec<(IpAddr, Option<Duration>)>),
    /// Removes addresses, if they are there.
    Remove(String, Vec<IpAddr>),
    /// Replaces the generation of the policy and its fingerprint.
    Edition(Edition),
}

impl Change {
    /// Adds addresses to the sets with a name, each to that of its family.
    pub(crate) fn adding(name: &str, addresses: &[(IpAddr, Option<Duration>)]) -> Vec<Self> {
        let add = |set, own: &[_]| Self::Add(set, own.to_vec());
        by_set(name, addresses, |(address, _)| *address, add)
    }

    /// Removes addresses from the sets with a name.
    pub(crate) fn removing(name: &str, addresses: &[IpAddr]) -> Vec<Self> {
        let remove = |set, own: &[_]| Self::Remove(set, own.to_vec());
        by_set(name, addresses, |address| *address, remove)
    }

    /// Empties the sets with a name.
    pub(crate) fn flushing(name: &str) -> Vec<Self> {
        let sets = Family::ALL.map(|family| Self::Flush(family.set(name)));
        sets.into()
    }
}

/// Changes for the addresses of each family, in the size of messages.
fn by_set<T: Copy>(
    name: &str,
    items: &[T],
    address: impl Fn(&T) -> IpAddr,
    change: impl Fn(String, &[T]) -> Change,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for family in Family::ALL {
        let own = items
            .iter()
            .filter(|it| Family::of(address(it)) == family)
            .copied();
        let own: Vec<T> = own.collect();
        let messages = own.chunks(PER_MESSAGE);
        changes.extend(messages.map(|part| change(family.set(name), part)));
    }
    changes
}

/// Writer of elements.
#[derive(Debug)]
pub(crate) struct Elements<T = Netlink> {
    kernel: T,
}

impl Elements {
    pub(crate) fn open() -> Result<Self, ElementsError> {
        let kernel = Netlink::open()?;
        Ok(Self { kernel })
    }
}

impl<T: Transactions> Elements<T> {
    /// Applies changes in one transaction. If the kernel accepts none of that size, in several, in
    /// the order of the changes; then a failure can leave those before it in effect.
    ///
    /// # Errors
    /// See [`ElementsError`].
    pub(crate) fn apply(&mut self, changes: &[Change]) -> Result<(), ElementsError> {
        if changes.is_empty() {
            return Ok(());
        }
        let batch = batch(changes, self.kernel.sequence());
        let bytes = batch.payload().len();
        if self.kernel.fits(bytes) {
            return self.kernel.commit(batch);
        }
        drop(batch);
        let (first, second) = changes.split_at(changes.len() / 2);
        if first.is_empty() {
            return Err(ElementsError::TooLarge(bytes));
        }
        self.apply(first)?;
        let partly = |error| ElementsError::Partly(Box::new(error));
        self.apply(second).map_err(partly)
    }
}

fn batch(changes: &[Change], sequence: u32) -> ChainedFinal<'static> {
    let mut batch = Chained::new(sequence);
    batch.request().op_batch_begin_do(&batch_header());
    for change in changes {
        change.write(&mut batch);
    }
    batch.request().op_batch_end_do(&batch_header());
    batch.finalize()
}

fn batch_header() -> Nfgenmsg {
    let mut header = Nfgenmsg::new();
    header.set_res_id(NFTABLES);
    header
}

fn header() -> Nfgenmsg {
    let mut header = Nfgenmsg::new();
    header.nfgen_family = INET;
    header
}

impl Change {
    fn write(&self, batch: &mut Chained<'_>) {
        match self {
            Self::Flush(set) => flush(batch, set),
            Self::Add(set, addresses) => {
                add(batch, set, addresses);
                // An element that is there keeps its old life. It is removed, which fails for one
                // that is missing, so that it is added first.
                if addresses.iter().any(|(_, life)| life.is_some()) {
                    remove(batch, set, addresses.iter().map(|(address, _)| *address));
                    add(batch, set, addresses);
                }
            }
            Self::Remove(set, addresses) => {
                // Some may have expired: they are added first, as above.
                let missing: Vec<_> = addresses.iter().map(|it| (*it, None)).collect();
                add(batch, set, &missing);
                remove(batch, set, addresses.iter().copied());
            }
            Self::Edition(edition) => {
                flush(batch, GENERATION);
                flush(batch, STAMP);
                flush(batch, FINGERPRINT);
                add(batch, FINGERPRINT, &[(edition.fingerprint.into(), None)]);
                let mark = edition.generation.to_ne_bytes();
                let elements = create(batch)
                    .op_newsetelem_do(&header())
                    .into_encoder()
                    .push_table(&name(TABLE))
                    .push_set(&name(GENERATION))
                    .nested_elements();
                drop(elements.nested_elem().nested_key().push_value(&mark));
                let mut elements = create(batch)
                    .op_newsetelem_do(&header())
                    .into_encoder()
                    .push_table(&name(TABLE))
                    .push_set(&name(STAMP))
                    .nested_elements();
                for protocol in PROTOCOLS {
                    elements = elements
                        .nested_elem()
                        .nested_key()
                        .push_value(&[protocol])
                        .end_nested()
                        .nested_data()
                        .push_value(&mark)
                        .end_nested()
                        .end_nested();
                }
            }
        }
    }
}

fn name(text: &str) -> CString {
    CString::new(text).expect("names of sets have no zero byte")
}

fn create<'a>(batch: &'a mut Chained<'_>) -> Request<'a> {
    batch.request().set_create()
}

fn flush(batch: &mut Chained<'_>, set: &str) {
    batch
        .request()
        .op_delsetelem_do(&header())
        .into_encoder()
        .push_table(&name(TABLE))
        .push_set(&name(set));
}

fn remove(batch: &mut Chained<'_>, set: &str, addresses: impl Iterator<Item = IpAddr>) {
    let mut elements = batch
        .request()
        .op_delsetelem_do(&header())
        .into_encoder()
        .push_table(&name(TABLE))
        .push_set(&name(set))
        .nested_elements();
    for address in addresses {
        let element = elements.nested_elem().nested_key();
        elements = with_octets(address, |octets| element.push_value(octets))
            .end_nested()
            .end_nested();
    }
}

fn add(batch: &mut Chained<'_>, set: &str, addresses: &[(IpAddr, Option<Duration>)]) {
    let mut elements = create(batch)
        .op_newsetelem_do(&header())
        .into_encoder()
        .push_table(&name(TABLE))
        .push_set(&name(set))
        .nested_elements();
    for (address, life) in addresses {
        let element = elements.nested_elem().nested_key();
        let mut element = with_octets(*address, |octets| element.push_value(octets)).end_nested();
        if let Some(life) = life {
            let milliseconds = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
            // Numbers of this subsystem are in network order.
            element = element.push_timeout(milliseconds.to_be());
        }
        elements = element.end_nested();
    }
}

fn with_octets<R>(address: IpAddr, work: impl FnOnce(&[u8]) -> R) -> R {
    match address {
        IpAddr::V4(address) => work(&address.octets()),
        IpAddr::V6(address) => work(&address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A kernel that accepts transactions up to a size, and fails one of them.
    struct Kernel {
        room: usize,
        /// Bytes of the transactions that it made.
        made: Vec<usize>,
        failing: Option<usize>,
    }

    impl Transactions for Kernel {
        fn sequence(&self) -> u32 {
            1
        }

        fn fits(&mut self, bytes: usize) -> bool {
            bytes <= self.room
        }

        fn commit(&mut self, batch: ChainedFinal<'_>) -> Result<(), ElementsError> {
            if self.failing == Some(self.made.len()) {
                return Err(ElementsError::Send(io::Error::other("drill")));
            }
            self.made.push(batch.payload().len());
            Ok(())
        }
    }

    fn kernel(room: usize, failing: Option<usize>) -> Elements<Kernel> {
        Elements {
            kernel: Kernel {
                room,
                made: Vec::new(),
                failing,
            },
        }
    }

    fn addresses(count: u32) -> Vec<IpAddr> {
        let all = (0..count).map(|it| IpAddr::from(it.to_be_bytes()));
        all.collect()
    }

    #[test]
    fn addresses_are_sorted_by_family_and_fit_into_messages() {
        let mut all = addresses(1025);
        all.insert(7, "2001:db8::1".parse().unwrap());
        let parts: Vec<(String, usize)> = Change::removing("kept", &all)
            .into_iter()
            .map(|change| match change {
                Change::Remove(set, own) => (set, own.len()),
                other => panic!("{other:?}"),
            })
            .collect();
        let want = [
            ("kept_v4", 512),
            ("kept_v4", 512),
            ("kept_v4", 1),
            ("kept_v6", 1),
        ];
        assert_eq!(parts, want.map(|(set, count)| (set.to_owned(), count)));
        // The longest lists: addresses of IPv6 with a life.
        let longest: Vec<_> = (0..512_u128)
            .map(|it| (IpAddr::from(it.to_be_bytes()), Some(Duration::MAX)))
            .collect();
        let changes = Change::adding("dyn_allow", &longest);
        assert_eq!(changes.len(), 1);
        // Adding, removing, adding.
        let bytes = batch(&changes, 1).payload().len();
        assert!(bytes < 3 * usize::from(u16::MAX), "{bytes}");
    }

    #[test]
    fn changes_are_one_transaction_if_it_fits_and_else_several_in_order() {
        let changes = Change::removing("kept", &addresses(10_000));
        let mut large = kernel(usize::MAX, None);
        large.apply(&changes).unwrap();
        assert_eq!(large.kernel.made.len(), 1);
        // As much as a socket accepts without the right to more.
        let room = 212_960;
        let mut small = kernel(room, None);
        small.apply(&changes).unwrap();
        let made = &small.kernel.made;
        assert!(
            made.len() > 1 && made.iter().all(|bytes| *bytes <= room),
            "{made:?}"
        );
        let mut tiny = kernel(100, None);
        let refused = tiny.apply(&changes).unwrap_err();
        assert!(matches!(refused, ElementsError::TooLarge(_)), "{refused}");
        assert!(refused.is_without_effect() && tiny.kernel.made.is_empty());
    }

    #[test]
    fn a_failure_between_transactions_is_partial() {
        let changes = Change::removing("kept", &addresses(40_000));
        for failing in [0, 1, 2] {
            let mut small = kernel(212_960, Some(failing));
            let error = small.apply(&changes).unwrap_err();
            assert_eq!(small.kernel.made.len(), failing, "nothing follows");
            assert_eq!(error.is_without_effect(), failing == 0, "{error}");
        }
    }
}
