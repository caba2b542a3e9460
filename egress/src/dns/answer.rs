//! What becomes of an upstream's answer: which addresses it opens, and what the client sees of it.

use std::{collections::HashSet, net::IpAddr};

use hickory_server::proto::{
    op::Message,
    rr::{
        RData, Record, RecordType,
        rdata::{A, AAAA, SVCB, svcb::SvcParamValue},
    },
};

use super::name::plain;
use crate::{
    limits,
    policy::{Decision, Effective},
};

/// What an answer is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client gets it. These addresses must be reachable before.
    Pass {
        /// Addresses that the name leads to.
        addresses: Vec<IpAddr>,
        /// Names that it is an alias of.
        aliases: Vec<String>,
        /// Shortest lifetime of what leads to them, in seconds.
        ttl: u32,
    },
    /// The name is allowed, but the client must not use any address of the answer, for this reason, and
    /// the answer has nothing else.
    Empty(String),
    /// The name is an alias of what the client must not reach, for this reason.
    Block(String),
}

/// Judges the answer for an allowed name and takes out what the client must not use: addresses that
/// the policy refuses or that an allowed name may not open. What else the answer has stays, so that a
/// name with refused addresses still has its other family and types. Lifetimes are shortened to that of
/// the addresses in the packet filter.
///
/// Only what the name really leads to counts: its own records and those of its aliases (CNAME), none
/// of which a rule may refuse. Address hints of HTTPS and SVCB records are addresses, too.
pub(crate) fn judge(
    message: &mut Message,
    name: &str,
    policy: &Effective,
    decision: Decision<'_>,
) -> Verdict {
    let chain = match aliases(message, name, policy) {
        Ok(chain) => chain,
        Err(reason) => return Verdict::Block(reason),
    };
    let mut found = Found {
        policy,
        decision,
        addresses: Vec::new(),
        ttl: limits::ANSWER_TTL,
        refused: None,
        has_more: false,
    };
    message.answers.retain_mut(|record| {
        record.ttl = record.ttl.min(limits::ANSWER_TTL);
        !chain.contains(&plain(&record.name)) || found.visit(record)
    });
    for record in message
        .authorities
        .iter_mut()
        .chain(&mut message.additionals)
    {
        record.ttl = record.ttl.min(limits::ANSWER_TTL);
    }
    match found.refused {
        Some(address) if !found.has_more => Verdict::Empty(format!(
            "{name} leads to {address}, which is near the sandbox, private or refused; \
             a rule for the address would allow it"
        )),
        _ => {
            let mut aliases: Vec<String> = chain.into_iter().filter(|it| it != name).collect();
            aliases.sort();
            Verdict::Pass {
                addresses: found.addresses,
                aliases,
                ttl: found.ttl,
            }
        }
    }
}

/// The name and its aliases.
fn aliases(message: &Message, name: &str, policy: &Effective) -> Result<HashSet<String>, String> {
    let mut chain = HashSet::from([name.to_owned()]);
    // Aliases usually stand in order. If not, each round finds at least one more.
    for _ in 0..message.answers.len() {
        let before = chain.len();
        for record in &message.answers {
            let RData::CNAME(target) = &record.data else {
                continue;
            };
            let target = plain(&target.0);
            if !chain.contains(&plain(&record.name)) || chain.contains(&target) {
                continue;
            }
            if let Some(rule) = policy.refusing_rule(&target) {
                return Err(format!("{name} is an alias of {target}: {rule}"));
            }
            // The owner of the name must not decide how much is remembered of it.
            if chain.len() > limits::ALIASES {
                let most = limits::ALIASES;
                return Err(format!("{name} has more than {most} aliases"));
            }
            chain.insert(target);
        }
        if chain.len() == before {
            break;
        }
    }
    Ok(chain)
}

/// What was found in an answer.
struct Found<'a> {
    policy: &'a Effective,
    decision: Decision<'a>,
    addresses: Vec<IpAddr>,
    ttl: u32,
    /// An address that was taken out.
    refused: Option<IpAddr>,
    /// Whether a record of the chain stays that is more than a step of it or a signature.
    has_more: bool,
}

impl Found<'_> {
    /// Whether a record of the chain stays.
    fn visit(&mut self, record: &mut Record) -> bool {
        let stays = match &mut record.data {
            RData::A(A(address)) => self.admit((*address).into()),
            RData::AAAA(AAAA(address)) => self.admit((*address).into()),
            RData::HTTPS(https) => self.hints(&mut https.0),
            RData::SVCB(service) => self.hints(service),
            _ => true,
        };
        let leads_to_addresses = matches!(
            record.record_type(),
            RecordType::A
                | RecordType::AAAA
                | RecordType::CNAME
                | RecordType::HTTPS
                | RecordType::SVCB
        );
        if stays && leads_to_addresses {
            self.ttl = self.ttl.min(record.ttl);
        }
        self.has_more |=
            stays && !matches!(record.record_type(), RecordType::CNAME | RecordType::RRSIG);
        stays
    }

    fn admit(&mut self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if self.addresses.contains(&address) {
            return true;
        }
        if self.addresses.len() == limits::ADDRESSES {
            return false;
        }
        let is_admitted = self.policy.admits_answer(address, self.decision);
        match is_admitted {
            true => self.addresses.push(address),
            false => self.refused = Some(address),
        }
        is_admitted
    }

    /// Takes addresses out of a service record, which stays: it says more than addresses.
    fn hints(&mut self, service: &mut SVCB) -> bool {
        for (_, value) in &mut service.svc_params {
            match value {
                SvcParamValue::Ipv4Hint(hint) => hint.0.retain(|it| self.admit(it.0.into())),
                SvcParamValue::Ipv6Hint(hint) => hint.0.retain(|it| self.admit(it.0.into())),
                _ => {}
            }
        }
        service.svc_params.retain(|(_, value)| match value {
            SvcParamValue::Ipv4Hint(hint) => !hint.0.is_empty(),
            SvcParamValue::Ipv6Hint(hint) => !hint.0.is_empty(),
            _ => true,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use hickory_server::proto::{
        op::{MessageType, OpCode},
        rr::{
            Name,
            rdata::{
                CNAME, HTTPS, NULL, TXT,
                svcb::{IpHint, SvcParamKey},
            },
        },
    };

    use super::*;
    use crate::policy::{Policy, overlay::Overlay};

    fn policy(text: &str) -> Effective {
        Effective::new(
            &Policy::parse(text.as_bytes()).unwrap(),
            &Overlay::default(),
        )
    }

    fn name(text: &str) -> Name {
        Name::from_ascii(format!("{text}.")).unwrap()
    }

    fn a(owner: &str, ttl: u32, address: &str) -> Record {
        let data = match address.parse().unwrap() {
            IpAddr::V4(address) => RData::A(A(address)),
            IpAddr::V6(address) => RData::AAAA(AAAA(address)),
        };
        Record::from_rdata(name(owner), ttl, data)
    }

    fn alias(owner: &str, ttl: u32, target: &str) -> Record {
        Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(target))))
    }

    fn message(answers: Vec<Record>) -> Message {
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        message.answers = answers;
        message
    }

    fn judged(policy: &Effective, asked: &str, answers: Vec<Record>) -> (Verdict, Vec<Record>) {
        let mut message = message(answers);
        let verdict = judge(&mut message, asked, policy, policy.decide(asked));
        (verdict, message.answers)
    }

    fn pass(addresses: &[&str], ttl: u32) -> Verdict {
        pass_by(&[], addresses, ttl)
    }

    fn pass_by(aliases: &[&str], addresses: &[&str], ttl: u32) -> Verdict {
        Verdict::Pass {
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            aliases: aliases.iter().map(|it| (*it).to_owned()).collect(),
            ttl,
        }
    }

    const ALLOW_WILD: &str = r#"{"egress":[{"action":"allow","target":"*.wild.example"},
        {"action":"deny","target":"*.ads.example"}]}"#;

    #[test]
    fn only_what_the_name_leads_to_is_opened() {
        let policy = policy(ALLOW_WILD);
        let (verdict, answers) = judged(
            &policy,
            "www.wild.example",
            vec![
                // Not in order.
                a("edge.cdn.example", 30, "192.0.2.1"),
                alias("two.cdn.example", 40, "edge.cdn.example"),
                alias("WWW.wild.example", 50, "two.cdn.example"),
                a("edge.cdn.example", 9999, "2001:db8::1"),
                a("other.example", 5, "192.0.2.9"),
            ],
        );
        let aliases = ["edge.cdn.example", "two.cdn.example"];
        assert_eq!(
            verdict,
            pass_by(&aliases, &["192.0.2.1", "2001:db8::1"], 30)
        );
        assert_eq!(answers.len(), 5, "records of others are passed on");
        assert!(answers.iter().all(|it| it.ttl <= 300));
    }

    #[test]
    fn an_alias_that_a_rule_refuses_blocks_the_answer() {
        let policy = policy(ALLOW_WILD);
        let (verdict, _) = judged(
            &policy,
            "www.wild.example",
            vec![
                alias("www.wild.example", 60, "x.ads.example"),
                a("x.ads.example", 60, "192.0.2.1"),
            ],
        );
        let Verdict::Block(reason) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(
            reason,
            "www.wild.example is an alias of x.ads.example: deny *.ads.example"
        );
        // A circle ends.
        let (verdict, _) = judged(
            &policy,
            "www.wild.example",
            vec![
                alias("www.wild.example", 60, "b.example"),
                alias("b.example", 60, "www.wild.example"),
            ],
        );
        assert_eq!(verdict, pass_by(&["b.example"], &[], 60));
    }

    #[test]
    fn a_name_with_too_many_aliases_is_refused() {
        let policy = policy(ALLOW_WILD);
        let judged = |count: usize| {
            let name = |number: usize| match number {
                0 => "www.wild.example".to_owned(),
                number => format!("a{number}.example"),
            };
            let mut answers: Vec<Record> = (0..count)
                .map(|number| alias(&name(number), 60, &name(number + 1)))
                .collect();
            answers.push(a(&name(count), 60, "192.0.2.1"));
            judged(&policy, "www.wild.example", answers).0
        };
        let Verdict::Pass { aliases, .. } = judged(16) else {
            panic!("as many as there may be");
        };
        assert_eq!(aliases.len(), 16);
        let reason = "www.wild.example has more than 16 aliases".to_owned();
        assert_eq!(judged(17), Verdict::Block(reason));
    }

    #[test]
    fn addresses_near_the_sandbox_are_taken_out() {
        let policy = policy(ALLOW_WILD);
        let near = [
            "169.254.169.254",
            "127.0.0.1",
            "10.0.0.1",
            "::1",
            "::ffff:10.0.0.1",
        ];
        let mut records: Vec<Record> = near.iter().map(|it| a("x.wild.example", 60, it)).collect();
        let (verdict, answers) = judged(&policy, "x.wild.example", records.clone());
        assert!(matches!(verdict, Verdict::Empty(_)), "{verdict:?}");
        assert_eq!(answers, []);
        records.push(a("x.wild.example", 60, "192.0.2.1"));
        let (verdict, answers) = judged(&policy, "x.wild.example", records);
        assert_eq!(verdict, pass(&["192.0.2.1"], 60));
        assert_eq!(answers.len(), 1);
    }

    #[test]
    fn hints_of_service_records_are_addresses() {
        let policy = policy(ALLOW_WILD);
        let hints = vec![
            (
                SvcParamKey::Ipv4Hint,
                SvcParamValue::Ipv4Hint(IpHint(vec![
                    A([192, 0, 2, 7].into()),
                    A([10, 0, 0, 1].into()),
                ])),
            ),
            (
                SvcParamKey::Ipv6Hint,
                SvcParamValue::Ipv6Hint(IpHint(vec![AAAA("::1".parse().unwrap())])),
            ),
        ];
        let service = HTTPS(SVCB::new(1, Name::root(), hints));
        let record = Record::from_rdata(name("s.wild.example"), 60, RData::HTTPS(service));
        let (verdict, answers) = judged(&policy, "s.wild.example", vec![record]);
        assert_eq!(verdict, pass(&["192.0.2.7"], 60));
        let RData::HTTPS(service) = &answers[0].data else {
            panic!("{answers:?}");
        };
        assert_eq!(service.0.svc_params.len(), 1);
    }

    #[test]
    fn an_answer_is_empty_only_if_nothing_but_refused_addresses_answers_the_query() {
        let policy = policy(ALLOW_WILD);
        let asked = "x.wild.example";
        let service = |addresses: &[&str]| {
            let hints = addresses.iter().map(|it| A(it.parse().unwrap())).collect();
            let hints = SvcParamValue::Ipv4Hint(IpHint(hints));
            let hints = vec![(SvcParamKey::Ipv4Hint, hints)];
            SVCB::new(1, Name::root(), hints)
        };
        let text = RData::TXT(TXT::new(vec!["v=1".to_owned()]));
        let record = |data: RData| Record::from_rdata(name(asked), 60, data);
        let signature = RData::Unknown {
            code: RecordType::RRSIG,
            rdata: NULL::with(vec![0; 20]),
        };
        let v4 = || a(asked, 60, "10.0.0.1");
        let v6 = || a(asked, 60, "fd00::1");
        for (answers, left) in [
            (vec![v4()], None),
            (vec![v6()], None),
            (
                vec![alias(asked, 60, "b.example"), a("b.example", 60, "::1")],
                None,
            ),
            (vec![v4(), record(signature)], None),
            // Of another name.
            (vec![v4(), a("other.example", 60, "192.0.2.9")], None),
            (vec![v6(), a(asked, 60, "2001:db8::1")], Some(1)),
            (vec![v4(), record(text.clone())], Some(1)),
            (
                vec![record(RData::HTTPS(HTTPS(service(&["10.0.0.1"]))))],
                Some(1),
            ),
            (vec![record(RData::SVCB(service(&["10.0.0.1"])))], Some(1)),
            (vec![record(text)], Some(1)),
            // The name has no record of the type.
            (vec![], Some(0)),
            (vec![alias(asked, 60, "b.example")], Some(1)),
        ] {
            let (verdict, kept) = judged(&policy, asked, answers.clone());
            match (left, verdict) {
                (None, Verdict::Empty(why)) => assert!(why.contains("near the sandbox"), "{why}"),
                (Some(left), Verdict::Pass { .. }) => assert_eq!(kept.len(), left, "{answers:?}"),
                (_, verdict) => panic!("{answers:?}: {verdict:?}"),
            }
        }
    }

    #[test]
    fn answers_without_addresses_open_nothing() {
        let policy = policy(ALLOW_WILD);
        let text = RData::TXT(TXT::new(vec!["v=1".to_owned()]));
        let record = Record::from_rdata(name("t.wild.example"), 600, text);
        let (verdict, answers) = judged(&policy, "t.wild.example", vec![record]);
        assert_eq!(verdict, pass(&[], 300));
        assert_eq!(answers[0].ttl, 300);
    }

    #[test]
    fn long_answers_are_cut() {
        let policy = policy(r#"{"defaultAction":"allow"}"#);
        let records = (0..200_u8).map(|last| a("x.example", 60, &format!("192.0.2.{last}")));
        let (verdict, answers) = judged(&policy, "x.example", records.collect());
        let Verdict::Pass { addresses, .. } = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!((addresses.len(), answers.len()), (64, 64));
    }
}
