//! The internet of the tests: an authoritative name server, and machines that answer.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
};

use hickory_server::proto::{
    op::{Message, MessageType, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{
            A, AAAA, CNAME, HTTPS, SVCB, TXT,
            svcb::{IpHint, SvcParamKey, SvcParamValue},
        },
    },
};

use crate::world::{Namespace, RESOLVER, SOON};

/// Ports on which every machine of the internet answers, over TCP and UDP.
pub(crate) const PORTS: [u16; 5] = [80, 443, 853, 5353, 7000];

/// Machines that have names or are asked for by address.
const MACHINES: [&str; 10] = [
    RESOLVER,
    "198.51.100.1",
    "198.51.100.2",
    "198.51.100.3",
    "203.0.113.1",
    "203.0.113.2",
    "169.254.169.254",
    "10.77.0.1",
    "2001:db8::1",
    "2001:db8::2",
];

type Zone = Arc<Mutex<HashMap<String, Entry>>>;

#[derive(Clone, Debug, Default)]
struct Entry {
    records: Vec<(u32, RData)>,
    code: Option<ResponseCode>,
    is_silent: bool,
    gate: Option<Gate>,
}

/// Holds answers back until it is open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Lets the answers go.
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let closed = self.0.0.lock().unwrap();
        let waited = self.0.1.wait_while(closed, |is_open| !*is_open);
        drop(waited.unwrap());
    }
}

/// Names and services.
pub(crate) struct Internet {
    zone: Zone,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Internet {
    /// Starts the services in a namespace.
    pub(crate) fn start(namespace: &Namespace) -> Self {
        for machine in MACHINES {
            namespace.add_address(machine.parse().unwrap());
        }
        let (zone, asked) = (Zone::default(), Arc::<Mutex<Vec<String>>>::default());
        let (ready, is_ready) = mpsc::channel();
        let enter = namespace.borrowed();
        let (served, heard) = (Arc::clone(&zone), Arc::clone(&asked));
        thread::spawn(move || {
            enter();
            serve_names(served, heard);
            for port in PORTS {
                echo(port);
            }
            ready.send(()).unwrap();
        });
        is_ready.recv_timeout(SOON).expect("the internet starts");
        Self { zone, asked }
    }

    /// Gives a name addresses with a lifetime of a minute.
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) {
        self.name_for(name, 60, addresses);
    }

    /// Gives a name addresses with a lifetime in seconds.
    pub(crate) fn name_for(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let records = addresses.iter().map(|text| match text.parse().unwrap() {
            IpAddr::V4(address) => (ttl, RData::A(A(address))),
            IpAddr::V6(address) => (ttl, RData::AAAA(AAAA(address))),
        });
        self.set(name, records.collect());
    }

    /// Makes a name an alias.
    pub(crate) fn alias(&self, name: &str, target: &str) {
        let target = Name::from_ascii(format!("{target}.")).unwrap();
        self.set(name, vec![(60, RData::CNAME(CNAME(target)))]);
    }

    /// Gives a name a text of this length.
    pub(crate) fn text(&self, name: &str, length: usize) {
        let texts: Vec<String> = "x"
            .repeat(length)
            .as_bytes()
            .chunks(200)
            .map(|it| String::from_utf8(it.to_vec()).unwrap())
            .collect();
        self.set(name, vec![(60, RData::TXT(TXT::new(texts)))]);
    }

    /// Gives a name a service record (HTTPS) with these hints.
    pub(crate) fn service(&self, name: &str, addresses: &[Ipv4Addr]) {
        let hints = addresses.iter().map(|address| A(*address)).collect();
        let hints = SvcParamValue::Ipv4Hint(IpHint(hints));
        let service = SVCB::new(1, Name::root(), vec![(SvcParamKey::Ipv4Hint, hints)]);
        self.set(name, vec![(60, RData::HTTPS(HTTPS(service)))]);
    }

    /// Lets queries for a name fail.
    pub(crate) fn fail(&self, name: &str, code: ResponseCode) {
        let entry = Entry {
            code: Some(code),
            ..Entry::default()
        };
        self.zone.lock().unwrap().insert(name.to_owned(), entry);
    }

    /// Holds answers for a name back. Other queries over the same protocol wait, too.
    pub(crate) fn hold(&self, name: &str) -> Gate {
        let gate = Gate::default();
        let mut zone = self.zone.lock().unwrap();
        zone.get_mut(name).expect("it has a name").gate = Some(gate.clone());
        gate
    }

    /// Leaves queries for a name without an answer.
    pub(crate) fn silence(&self, name: &str) {
        let entry = Entry {
            is_silent: true,
            ..Entry::default()
        };
        self.zone.lock().unwrap().insert(name.to_owned(), entry);
    }

    /// Number of queries that reached the name server for a name.
    pub(crate) fn asked(&self, name: &str) -> usize {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .filter(|it| *it == name)
            .count()
    }

    fn set(&self, name: &str, records: Vec<(u32, RData)>) {
        let entry = Entry {
            records,
            ..Entry::default()
        };
        self.zone.lock().unwrap().insert(name.to_owned(), entry);
    }
}

/// Serves the zone over UDP and TCP.
fn serve_names(zone: Zone, asked: Arc<Mutex<Vec<String>>>) {
    let address = SocketAddr::new(RESOLVER.parse().unwrap(), 53);
    let socket = UdpSocket::bind(address).unwrap();
    let listener = TcpListener::bind(address).unwrap();
    let (zone_tcp, asked_tcp) = (Arc::clone(&zone), Arc::clone(&asked));
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let Some(mut answer) = answer(&buffer[..length], &zone, &asked) else {
                continue;
            };
            let mut bytes = answer.to_vec().unwrap();
            if bytes.len() > 512 {
                answer.answers.clear();
                answer.metadata.truncation = true;
                bytes = answer.to_vec().unwrap();
            }
            socket.send_to(&bytes, client).unwrap();
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 2];
            if stream.read_exact(&mut length).is_err() {
                continue;
            }
            let mut query = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut query).unwrap();
            let Some(answer) = answer(&query, &zone_tcp, &asked_tcp) else {
                continue;
            };
            let bytes = answer.to_vec().unwrap();
            let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length, &bytes[..]].concat()).unwrap();
        }
    });
}

fn answer(query: &[u8], zone: &Zone, asked: &Mutex<Vec<String>>) -> Option<Message> {
    let query = Message::from_vec(query).ok()?;
    let question = query.queries.first()?.clone();
    let mut answer = Message::new(
        query.metadata.id,
        MessageType::Response,
        query.metadata.op_code,
    );
    answer.metadata.recursion_desired = true;
    answer.metadata.recursion_available = true;
    answer.add_query(question.clone());
    let mut owner = question.name().clone();
    let plain = |name: &Name| {
        name.to_ascii()
            .to_lowercase()
            .trim_end_matches('.')
            .to_owned()
    };
    asked.lock().unwrap().push(plain(&owner));
    let gate = zone
        .lock()
        .unwrap()
        .get(&plain(&owner))
        .and_then(|it| it.gate.clone());
    if let Some(gate) = gate {
        gate.pass();
    }
    let zone = zone.lock().unwrap();
    let mut code = ResponseCode::NXDomain;
    while let Some(entry) = zone.get(&plain(&owner)) {
        if entry.is_silent {
            return None;
        }
        code = entry.code.unwrap_or(ResponseCode::NoError);
        let mut next = None;
        for (ttl, data) in &entry.records {
            let kind = data.record_type();
            if kind == question.query_type() || kind == RecordType::CNAME {
                answer.add_answer(Record::from_rdata(owner.clone(), *ttl, data.clone()));
            }
            if let RData::CNAME(target) = data {
                next = Some(target.0.clone());
            }
        }
        match next {
            Some(target) => owner = target,
            None => break,
        }
    }
    answer.metadata.response_code = code;
    Some(answer)
}

/// Answers on a port of all addresses: what a client sends comes back.
fn echo(port: u16) {
    for address in [
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    ] {
        // One socket for both families, if the system has it so.
        let Ok(listener) = TcpListener::bind((address, port)) else {
            continue;
        };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream);
                    let _ended = std::io::copy(&mut reader, &mut writer);
                });
            }
        });
    }
    for machine in MACHINES {
        let address: IpAddr = machine.parse().unwrap();
        let socket = UdpSocket::bind((address, port)).unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, client)) = socket.recv_from(&mut buffer) {
                let _sent = socket.send_to(&buffer[..length], client);
            }
        });
    }
}
