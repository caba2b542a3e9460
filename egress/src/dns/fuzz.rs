//! Fuzz target: answers of upstreams.

use hickory_server::proto::op::Message;

use super::{
    answer::{Verdict, judge},
    name::plain,
};
use crate::{
    limits,
    policy::{Action, Effective, Policy, overlay::Overlay},
};

/// Policies under which answers are judged.
const POLICIES: [&str; 2] = [
    r#"{"egress":[{"action":"deny","target":"*.ads.example"},
        {"action":"allow","target":"*.example"},{"action":"allow","target":"10.1.0.0/16"}]}"#,
    r#"{"defaultAction":"allow","egress":[{"action":"deny","target":"192.0.2.0/24"}]}"#,
];

/// Judges a message as the answer to its own question, if that is for an allowed name.
pub fn answer(data: &[u8]) {
    let Ok(message) = Message::from_vec(data) else {
        return;
    };
    let Some(question) = message.queries.first() else {
        return;
    };
    let name = plain(question.name());
    for policy in POLICIES {
        let policy = Policy::parse(policy.as_bytes()).expect("it is a policy");
        let policy = Effective::new(&policy, &Overlay::default());
        if policy.decide(&name).action == Action::Allow {
            check(message.clone(), &name, &policy);
        }
    }
}

/// Only addresses that the policy admits are opened, the client gets no others under the name that
/// it asked for, and no lifetime is longer than the packet filter keeps an address.
fn check(mut message: Message, name: &str, policy: &Effective) {
    let decision = policy.decide(name);
    let verdict = judge(&mut message, name, policy, decision);
    let Verdict::Pass { addresses, ttl, .. } = &verdict else {
        return;
    };
    assert!(*ttl <= limits::ANSWER_TTL, "{ttl}");
    assert!(addresses.len() <= limits::ADDRESSES);
    for address in addresses {
        assert!(policy.admits_answer(*address, decision), "{address}");
    }
    for record in &message.answers {
        if let Some(address) = record.data.ip_addr()
            && plain(&record.name) == name
        {
            assert!(addresses.contains(&address.to_canonical()), "{address}");
        }
    }
    let rest = message.authorities.iter().chain(&message.additionals);
    for record in message.answers.iter().chain(rest) {
        assert!(record.ttl <= limits::ANSWER_TTL, "{record:?}");
    }
    // An answer that is too long to be written is an error, not a panic.
    let _written = message.to_vec();
    let again = judge(&mut message, name, policy, decision);
    assert_eq!(again, verdict, "what remains is judged the same");
}

#[cfg(test)]
mod tests {
    #[test]
    fn answers() {
        crate::fuzz::short_run("egress_answer", super::answer);
    }
}
