//! What `nft` lists of the table.

use std::{net::IpAddr, time::Duration};

use serde_json::{Value, json};

use super::{
    expression::Family,
    program::{NftError, nft},
    ruleset::{Edition, FINGERPRINT, GENERATION, TABLE, sets},
};
use crate::policy::Action;

/// All objects in the table.
pub(crate) struct Listing(Value);

impl Listing {
    /// Lists the table. The caller blocks.
    pub(crate) fn read() -> Result<Self, NftError> {
        Self::list(json!({"table": {"family": "inet", "name": TABLE}}))
    }

    /// Lists one set: others may have tens of thousands of addresses. The caller blocks.
    pub(crate) fn of_set(name: &str) -> Result<Self, NftError> {
        Self::list(json!({"set": {"family": "inet", "table": TABLE, "name": name}}))
    }

    fn list(object: Value) -> Result<Self, NftError> {
        let document = json!({"nftables": [{"list": object}]});
        let text = nft(&document.to_string())?;
        Ok(Self::of(&text))
    }

    /// A listing as JSON. What is none has no objects.
    pub(crate) fn of(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// The edition in force. `None` if it is incomplete.
    pub(crate) fn edition(&self) -> Option<Edition> {
        let element = |name: &str| match self.elements(name) {
            [only] => Some(only),
            _ => None,
        };
        Some(Edition {
            generation: element(GENERATION)?.as_u64()?.try_into().ok()?,
            fingerprint: element(FINGERPRINT)?.as_str()?.parse().ok()?,
        })
    }

    /// Addresses that are let through, and for how long at most.
    pub(crate) fn learned(&self) -> Vec<(IpAddr, Duration)> {
        let found = self.of_both(sets::LEARNED).filter_map(|it| {
            let element = &it["elem"];
            // Listed are whole seconds.
            let left = element["expires"].as_u64()?.saturating_add(1);
            Some((address(&element["val"])?, Duration::from_secs(left)))
        });
        found.collect()
    }

    /// Addresses whose connections go on.
    pub(crate) fn kept(&self) -> Vec<IpAddr> {
        self.of_both(sets::KEPT).filter_map(address).collect()
    }

    /// Destinations that the packet filter recorded.
    pub(crate) fn records(&self) -> Vec<Record> {
        let objects = self.objects().iter();
        let records = objects.flat_map(|object| {
            let set = &object["set"];
            let action = match set["name"].as_str().and_then(|name| name.rsplit_once("_v")) {
                Some((sets::REFUSED, _)) => Some(Action::Deny),
                Some((sets::ADMITTED, _)) => Some(Action::Allow),
                _ => None,
            };
            let own = action.map(|action| {
                let elements = list(&set["elem"]).iter();
                elements.filter_map(move |it| record(action, it))
            });
            own.into_iter().flatten()
        });
        records.collect()
    }

    fn objects(&self) -> &[Value] {
        list(&self.0["nftables"])
    }

    /// Elements of a set.
    fn elements(&self, name: &str) -> &[Value] {
        let mut sets = self.objects().iter().map(|object| &object["set"]);
        let set = sets.find(|set| set["name"] == name);
        set.map_or(&[], |set| list(&set["elem"]))
    }

    /// Elements of the sets of both families.
    fn of_both(&self, name: &str) -> impl Iterator<Item = &Value> {
        let sets = Family::ALL.map(|family| self.elements(&family.set(name)));
        sets.into_iter().flatten()
    }
}

/// A destination that the packet filter saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub action: Action,
    /// Destination address.
    pub address: IpAddr,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Destination port.
    pub port: u16,
    /// Packets: for admitted destinations, connections.
    pub packets: u64,
}

fn record(action: Action, element: &Value) -> Option<Record> {
    let element = &element["elem"];
    let key = element["val"]["concat"].as_array()?;
    Some(Record {
        action,
        address: address(key.first()?)?,
        protocol: match key.get(1)? {
            Value::String(name) => name.clone(),
            number => number.to_string(),
        },
        port: key.get(2)?.as_u64()?.try_into().ok()?,
        packets: element["counter"]["packets"].as_u64().unwrap_or_default(),
    })
}

fn address(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse().ok()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
