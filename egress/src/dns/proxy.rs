//! Decides each query, and passes allowed ones on.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use futures::{StreamExt, stream::FuturesUnordered};
use hickory_server::{
    net::runtime::Time,
    proto::{
        op::{Edns, Message, Metadata, OpCode, ResponseCode},
        rr::{Record, rdata::opt::EdnsOption},
    },
    server::{Request, RequestHandler, ResponseHandler, ResponseInfo},
    zone_handler::MessageResponseBuilder,
};
use osb_log::Json;
use osb_service::Supervisor;
use tokio::{sync::Semaphore, task::JoinHandle};
use tracing::{info, warn};

use super::{
    Upstreams,
    answer::{Verdict, judge},
    name::plain,
    refusal::PlainQuery,
    tcp, udp,
};
use crate::{
    config::Mode,
    decisions::Decisions,
    enforcer::Enforcer,
    firewall::{Answer, LearnError},
    limits,
    places::ConnectionPlaces,
    policy::{Action, Decision, Effective, NameIndex},
    sockets::Sockets,
    telemetry::Instruments,
    webhook::Webhook,
};

/// Option of an answer that says why it is as it is (RFC 8914).
const EXTENDED_ERROR: u16 = 15;
/// Its codes.
const BLOCKED: u16 = 15;
const FILTERED: u16 = 17;
const NO_REACHABLE_AUTHORITY: u16 = 22;
const NETWORK_ERROR: u16 = 23;
/// Records beyond the question that a query may have (contract: egress §3.1).
const EXTRA_RECORDS: usize = 2;

/// Parts of the sidecar to which decisions are reported.
#[derive(Debug)]
pub struct Observers {
    /// Memory of decisions.
    pub decisions: Arc<Decisions>,
    /// Webhook for denied names.
    pub webhook: Option<Webhook>,
    /// Metrics.
    pub instruments: Instruments,
    /// Names whose allowed queries are not logged.
    pub log_skip: NameIndex,
}

/// The proxy.
#[derive(Debug)]
pub struct Proxy {
    enforcer: Arc<Enforcer>,
    upstreams: Arc<Upstreams>,
    observers: Observers,
    /// Queries that may wait for an upstream.
    places: Semaphore,
}

impl Proxy {
    /// A proxy that asks these upstreams.
    #[must_use]
    pub fn new(enforcer: Arc<Enforcer>, upstreams: Arc<Upstreams>, observers: Observers) -> Self {
        Self {
            enforcer,
            upstreams,
            observers,
            places: Semaphore::new(limits::QUERIES),
        }
    }
}

/// A proxy that answers queries.
pub struct Serving(FuturesUnordered<JoinHandle<()>>);

impl Serving {
    /// Waits until queries over UDP or over TCP are no longer answered, which happens only by a fault
    /// while the supervisor does not stop.
    pub async fn ended(&mut self) {
        self.0.next().await;
    }
}

/// Serves a proxy on these addresses, over UDP and TCP. Stops when the result is dropped and the
/// supervisor stops.
///
/// # Errors
/// An address is unavailable.
pub async fn serve(
    proxy: Proxy,
    addresses: &[SocketAddr],
    sockets: &mut Sockets,
    tasks: &Supervisor,
) -> io::Result<Serving> {
    let proxy = Shared(Arc::new(proxy));
    let places = ConnectionPlaces::new(limits::TCP_CONNECTIONS);
    let serving = FuturesUnordered::new();
    for address in addresses {
        let socket = sockets.datagrams(*address).await?;
        let datagrams = udp::serve(socket, proxy.clone(), tasks.clone());
        serving.push(tasks.spawn("dns", datagrams));
        let listener = sockets.listener(*address).await?;
        let connections = tcp::serve(listener, proxy.clone(), places.clone(), tasks.clone());
        serving.push(tasks.spawn("dns", connections));
    }
    Ok(Serving(serving))
}

/// A proxy for several sockets.
#[derive(Clone)]
struct Shared(Arc<Proxy>);

#[async_trait::async_trait]
impl RequestHandler for Shared {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        out: R,
    ) -> ResponseInfo {
        let reply = Reply { request, out };
        if request.metadata.op_code != OpCode::Query {
            return reply.error(ResponseCode::NotImp, None).await;
        }
        let Ok(asked) = request.request_info() else {
            return reply.error(ResponseCode::FormErr, None).await;
        };
        let is_strange = request.answers.len() > 1
            || request.authorities.len() > 1
            || request.additionals.len() > EXTRA_RECORDS;
        if is_strange {
            return reply.error(ResponseCode::FormErr, None).await;
        }
        let name = plain(asked.query.original().name());
        let proxy = &*self.0;
        let policy = proxy.enforcer.effective();
        let decision = policy.decide(&name);
        match decision.action {
            Action::Deny => {
                proxy.observers.decisions.note(&name, decision);
                proxy.deny(reply, &name, &reason(&name, decision)).await
            }
            Action::Allow => proxy.forward(reply, name, &policy).await,
        }
    }
}

impl udp::Refuser for Shared {
    fn refuse(&self, query: &[u8], name: &mut String, into: &mut Vec<u8>) -> bool {
        let proxy = &*self.0;
        let Some(query) = PlainQuery::read(query, name) else {
            return false;
        };
        let policy = proxy.enforcer.effective();
        let decision = policy.decide(name);
        if decision.action == Action::Allow {
            return false;
        }
        let why = match query.takes_a_reason() {
            true => reason(name, decision),
            false => String::new(),
        };
        let is_refused = query.refuse(EXTENDED_ERROR, BLOCKED, &why, into);
        if is_refused {
            proxy.observers.decisions.note(name, decision);
            proxy.report(name);
        }
        is_refused
    }
}

/// Why a policy refuses a name.
fn reason(name: &str, decision: Decision<'_>) -> String {
    match decision.rule {
        Some(rule) => format!("the network policy refuses {name}: {rule}"),
        None => format!("the network policy has no rule that allows {name}"),
    }
}

impl Proxy {
    /// Reports a denied name.
    fn report(&self, name: &str) {
        self.observers.instruments.denied();
        if let Some(webhook) = &self.observers.webhook {
            webhook.denied(name);
        }
    }

    async fn deny<R: ResponseHandler>(
        &self,
        reply: Reply<'_, R>,
        name: &str,
        why: &str,
    ) -> ResponseInfo {
        self.report(name);
        let why = Some((BLOCKED, why));
        reply.error(ResponseCode::NXDomain, why).await
    }

    async fn forward<R: ResponseHandler>(
        &self,
        reply: Reply<'_, R>,
        name: String,
        policy: &Effective,
    ) -> ResponseInfo {
        let Ok(_place) = self.places.try_acquire() else {
            warn!("too many queries wait for an upstream, further ones fail");
            let why = Some((NETWORK_ERROR, "too many queries wait for an upstream"));
            return reply.error(ResponseCode::ServFail, why).await;
        };
        let begin = Instant::now();
        let answered = self.upstreams.ask(reply.request.as_slice()).await;
        self.observers.instruments.forwarded(begin.elapsed());
        let parsed = match &answered {
            Ok(answer) => Message::from_vec(answer).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let mut message = match parsed {
            Ok(message) => message,
            Err(error) => {
                self.observers.decisions.note(&name, policy.decide(&name));
                info!(
                    opensandbox.event = "egress.outbound",
                    target.host = name,
                    error,
                    "outbound"
                );
                let why = Some((NO_REACHABLE_AUTHORITY, "no name server gave an answer"));
                return reply.error(ResponseCode::ServFail, why).await;
            }
        };
        let decisions = &self.observers.decisions;
        let (addresses, filtered) = match self.enforcer.mode() {
            Mode::Dns => (addresses_in(&message), None),
            Mode::DnsNft => match self.open(&mut message, &name, policy).await {
                Ok(opened) => (opened, None),
                Err(Unopened::Filtered(why)) => (Vec::new(), Some(why)),
                Err(Unopened::Blocked(why)) => {
                    decisions.note_reason(&name, Action::Deny, &why);
                    return self.deny(reply, &name, &why).await;
                }
                Err(Unopened::Failed) => {
                    let why = Some((NETWORK_ERROR, "the packet filter could not be changed"));
                    return reply.error(ResponseCode::ServFail, why).await;
                }
            },
        };
        let exists = message.metadata.response_code != ResponseCode::NXDomain;
        let decision = policy.decide(&name);
        decisions.note_answer(&name, decision, exists, filtered.as_deref());
        if self.observers.log_skip.first(&name).is_none() {
            let ips = (!addresses.is_empty()).then(|| Json::of(&addresses));
            info!(
                opensandbox.event = "egress.outbound",
                target.host = name,
                target.ips = ips.as_ref().map(Json::value),
                "outbound"
            );
        }
        match filtered {
            None => reply.pass(message).await,
            Some(why) => reply.no_data(&why).await,
        }
    }

    /// Lets the addresses of an answer through, before the client sees it.
    async fn open(
        &self,
        message: &mut Message,
        name: &str,
        policy: &Effective,
    ) -> Result<Vec<IpAddr>, Unopened> {
        let (addresses, aliases, ttl) = match judge(message, name, policy, policy.decide(name)) {
            Verdict::Pass {
                addresses,
                aliases,
                ttl,
            } => (addresses, aliases, ttl),
            Verdict::Empty(why) => return Err(Unopened::Filtered(why)),
            Verdict::Block(why) => return Err(Unopened::Blocked(why)),
        };
        let Some(firewall) = self.enforcer.firewall() else {
            return Ok(addresses);
        };
        if addresses.is_empty() {
            return Ok(addresses);
        }
        let answer = Answer {
            name: name.into(),
            aliases: aliases.into_iter().map(Into::into).collect(),
            addresses: addresses.clone(),
            ttl,
        };
        match firewall.learn(answer).await {
            Ok(is_new) => {
                if is_new {
                    self.observers.instruments.opened();
                }
                Ok(addresses)
            }
            Err(LearnError::Refused) => Err(Unopened::Blocked(format!(
                "the network policy changed and refuses {name}"
            ))),
            Err(LearnError::Filtered) => Err(Unopened::Filtered(format!(
                "the network policy changed and refuses an address of {name}"
            ))),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(
                    error,
                    name, "addresses cannot be let through, the query fails"
                );
                Err(Unopened::Failed)
            }
        }
    }
}

/// Addresses in an answer that is passed on as it is.
fn addresses_in(message: &Message) -> Vec<IpAddr> {
    let addresses = message.answers.iter().map(|record| record.data.ip_addr());
    addresses.flatten().collect()
}

/// Why the addresses of an answer are closed.
enum Unopened {
    /// The client must not use them. The name is allowed.
    Filtered(String),
    /// The name is refused.
    Blocked(String),
    /// The packet filter failed.
    Failed,
}

/// A query that has no answer yet.
struct Reply<'a, R> {
    request: &'a Request,
    out: R,
}

impl<R: ResponseHandler> Reply<'_, R> {
    /// Answers with a code. The reason is for clients that support extended errors.
    async fn error(self, code: ResponseCode, why: Option<(u16, &str)>) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&self.request.metadata);
        metadata.response_code = code;
        self.without_records(metadata, why).await
    }

    /// Answers that the name exists and has no such record. An error would be one of the whole name:
    /// musl gives up on a name if one of its address families does not exist.
    async fn no_data(self, why: &str) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&self.request.metadata);
        // Without it, glibc takes an empty answer for that of a server that knows nothing.
        metadata.recursion_available = true;
        self.without_records(metadata, Some((FILTERED, why))).await
    }

    async fn without_records(
        mut self,
        metadata: Metadata,
        why: Option<(u16, &str)>,
    ) -> ResponseInfo {
        let mut builder = MessageResponseBuilder::from_message_request(self.request);
        let edns = self.edns().map(|mut edns| {
            if let Some((info_code, text)) = why {
                let mut option = info_code.to_be_bytes().to_vec();
                option.extend_from_slice(text.as_bytes());
                edns.options_mut()
                    .insert(EdnsOption::Unknown(EXTENDED_ERROR, option));
            }
            edns
        });
        if let Some(edns) = &edns {
            builder.edns(edns);
        }
        let code = metadata.response_code;
        let response = builder.build_no_records(metadata);
        let sent = self.out.send_response(response).await;
        sent.unwrap_or_else(|_| self.unsent(code))
    }

    /// Passes an upstream's answer on. Its size is what the client can take.
    async fn pass(mut self, message: Message) -> ResponseInfo {
        let edns = self.edns().map(|own| match message.edns {
            Some(mut theirs) => {
                theirs.set_max_payload(own.max_payload());
                theirs
            }
            None => own,
        });
        let mut builder = MessageResponseBuilder::from_message_request(self.request);
        if let Some(edns) = &edns {
            builder.edns(edns);
        }
        let mut metadata = message.metadata;
        metadata.id = self.request.metadata.id;
        let code = metadata.response_code;
        let response = builder.build(
            metadata,
            &message.answers,
            &message.authorities,
            std::iter::empty::<&Record>(),
            &message.additionals,
        );
        let sent = self.out.send_response(response).await;
        sent.unwrap_or_else(|_| self.unsent(code))
    }

    /// Extension of the answer; `None` if the query has none.
    fn edns(&self) -> Option<Edns> {
        let asked = self.request.edns.as_ref()?;
        let mut edns = Edns::new();
        edns.set_max_payload(asked.max_payload());
        Some(edns)
    }

    /// What would have been sent to a client that is gone.
    fn unsent(&self, code: ResponseCode) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&self.request.metadata);
        metadata.response_code = code;
        let header = hickory_server::proto::op::Header {
            metadata,
            counts: hickory_server::proto::op::HeaderCounts::default(),
        };
        ResponseInfo::from(header)
    }
}

#[cfg(test)]
mod tests;
