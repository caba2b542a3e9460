//! Connections to backends, kept for the next request.
//!
//! A connection has no task of its own. The exchange that uses it also drives it: while it waits for
//! the response head, and then with each read of the response body. A request thus costs no switch
//! between tasks. Only a request whose body is still being sent when the response begins needs a task
//! ([`Connection::detach`]): a client may send all of it before it reads the response.

use std::{
    collections::HashMap,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, uri::Authority};
use hyper::{
    body::Incoming,
    client::conn::{
        TrySendError,
        http1::{Builder, SendRequest},
    },
};
use hyper_util::rt::TokioIo;
use osb_service::Supervisor;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Detour, Limits,
    request_body::RequestBody,
    socket::{Resetting, Socket},
    turn::Turn,
};

/// Silence after which the kernel sends keep-alive probes, which end tunnels to vanished backends.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// Does the reading and writing of a connection.
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// Opens connections and keeps unused ones. Clones share them.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    limits: Limits,
    http: Builder,
    tasks: Supervisor,
    unused: Mutex<Unused>,
}

#[derive(Default)]
struct Unused {
    /// By host and port, the last used at the end.
    by_backend: HashMap<Arc<str>, Vec<Kept>>,
    /// Whether a task closes those that were not used for too long.
    is_swept: bool,
}

struct Kept {
    connection: Connection,
    since: Instant,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(limits: Limits, tasks: &Supervisor) -> Self {
        let mut http = Builder::new();
        http.max_headers(limits.headers)
            // What browsers accept from old backends. Both are written anew for the client: a name
            // without blanks, a folded value on one line.
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true);
        Self(Arc::new(Inner {
            limits,
            http,
            tasks: tasks.clone(),
            unused: Mutex::default(),
        }))
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Takes a connection that an earlier request left.
    pub(crate) fn take(&self, backend: &Authority) -> Option<Connection> {
        let mut unused = self.0.unused();
        let kept = unused.by_backend.get_mut(backend.as_str())?;
        let oldest = Instant::now().checked_sub(self.0.limits.keep);
        while let Some(Kept { connection, since }) = kept.pop() {
            if oldest.is_some_and(|oldest| since < oldest) {
                // Those below it were used even earlier.
                kept.clear();
                return None;
            }
            if connection.sender.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    /// Finds a connection for a request: one that an earlier request left, if it may use such a one,
    /// otherwise a new one. Where nothing listens, the detour is tried; it is returned if it was taken.
    pub(crate) async fn reach(
        &self,
        backend: &Authority,
        may_reuse: bool,
        detour: impl FnOnce() -> Option<Detour>,
    ) -> io::Result<(Reached, Option<Detour>)> {
        let kept = |backend: &Authority| may_reuse.then(|| self.take(backend)).flatten();
        if let Some(connection) = kept(backend) {
            return Ok((Reached::Kept(connection), None));
        }
        let mut pauses = self.0.limits.refused.iter();
        let mut find_detour = Some(detour);
        let mut detour = None;
        loop {
            let error = match self.open(backend).await {
                Ok(connection) => return Ok((Reached::New(connection), None)),
                Err(error) if !is_transient(&error) => return Err(error),
                Err(error) => error,
            };
            if let Some(find) = find_detour.take() {
                detour = find();
            }
            if let Some(Detour { to, .. }) = &detour {
                let reached = match kept(&to.authority) {
                    Some(connection) => Ok(Reached::Kept(connection)),
                    None => self.open(&to.authority).await.map(Reached::New),
                };
                if let Ok(reached) = reached {
                    return Ok((reached, detour));
                }
            }
            // A program that restarts is back soon.
            match pauses.next() {
                Some(pause) => sleep(*pause).await,
                None => return Err(error),
            }
        }
    }

    /// Opens a connection. One that is refused or reset is tried again after each of
    /// [`Limits::refused`].
    pub(crate) async fn connect(&self, backend: &Authority) -> io::Result<Connection> {
        match self.reach(backend, false, || None).await? {
            (Reached::Kept(connection) | Reached::New(connection), _) => Ok(connection),
        }
    }

    async fn open(&self, backend: &Authority) -> io::Result<Connection> {
        let (socket, resetting) = Socket::new(self.open_stream(backend).await?);
        let (sender, driver) = self
            .0
            .http
            .handshake(TokioIo::new(socket))
            .await
            .map_err(io::Error::other)?;
        Ok(Connection {
            backend: backend.as_str().into(),
            resetting,
            sender,
            drive: Drive::Inline(Box::pin(driver.with_upgrades())),
            turn: Turn::new(),
            timer: None,
        })
    }

    async fn open_stream(&self, backend: &Authority) -> io::Result<TcpStream> {
        let host = backend.host();
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host);
        let port = backend.port_u16().unwrap_or(80);
        let connected = timeout(self.0.limits.connect, TcpStream::connect((host, port)));
        let stream = match connected.await {
            Ok(connected) => connected?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        // Both are refinements; a connection works without them.
        let _ = stream.set_nodelay(true);
        let probes = TcpKeepalive::new().with_time(TCP_KEEPALIVE);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&probes);
        Ok(stream)
    }

    /// Keeps a connection whose exchange is over for the next request, if it can serve another. One that
    /// is too many is reset.
    pub(crate) fn put(&self, connection: Connection) {
        let is_reusable =
            matches!(connection.drive, Drive::Inline(_)) && connection.sender.is_ready();
        let Limits {
            keep,
            keep_per_backend,
            ..
        } = self.0.limits;
        if !is_reusable || keep.is_zero() {
            return;
        }
        let mut unused = self.0.unused();
        let backend = Arc::clone(&connection.backend);
        let kept = unused.by_backend.entry(backend).or_default();
        if kept.len() >= keep_per_backend {
            // Many requests a second that each need a new connection come here.
            connection.resetting.at_drop();
            return;
        }
        kept.push(Kept {
            connection,
            since: Instant::now(),
        });
        if !std::mem::replace(&mut unused.is_swept, true) {
            drop(unused);
            let pool = Arc::downgrade(&self.0);
            self.0
                .tasks
                .spawn_abortable("unused connections", sweep(pool, keep));
        }
    }
}

impl Inner {
    fn unused(&self) -> MutexGuard<'_, Unused> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that were not used for so long, until none is left.
async fn sweep(pool: Weak<Inner>, keep: Duration) {
    loop {
        sleep(keep).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let mut unused = pool.unused();
        let oldest = Instant::now().checked_sub(keep);
        unused.by_backend.retain(|_, kept| {
            kept.retain(|kept| oldest.is_none_or(|oldest| kept.since >= oldest));
            !kept.is_empty()
        });
        if unused.by_backend.is_empty() {
            *unused = Unused::default();
            return;
        }
    }
}

/// A connection for a request.
pub(crate) enum Reached {
    /// Connection that an earlier request left.
    Kept(Connection),
    New(Connection),
}

/// Whether a program that listens again would be reached by another attempt.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

/// A connection to a backend, for one exchange at a time.
pub(crate) struct Connection {
    backend: Arc<str>,
    resetting: Resetting,
    sender: SendRequest<RequestBody>,
    drive: Drive,
    turn: Turn,
    /// Made at the first wait. Moving it to a later time is cheaper than making another.
    timer: Option<Pin<Box<Sleep>>>,
}

enum Drive {
    /// By the exchange.
    Inline(Driver),
    /// By a task, which ends with this.
    Task(#[expect(dead_code, reason = "held, not read")] DropGuard),
    /// It is closed.
    Ended,
}

impl Connection {
    /// Sends a request and drives the connection until the response head is here. `silent` decides
    /// at a deadline whether to give up, which is `None`, or when to decide again.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
        mut deadline: Option<Instant>,
        mut silent: impl FnMut() -> Option<Instant>,
    ) -> Result<Response<Incoming>, SendFailure> {
        let Self {
            sender,
            drive,
            turn,
            timer,
            ..
        } = self;
        let mut head = std::pin::pin!(turn.before_poll(|| sender.try_send_request(request)));
        std::future::poll_fn(|cx| {
            turn.poll(cx, |cx| {
                drive.poll(cx);
                if let Poll::Ready(head) = head.as_mut().poll(cx) {
                    let failed = |broken| SendFailure::Broken(Box::new(broken));
                    return Poll::Ready(head.map_err(failed));
                }
                while let Some(at) = deadline {
                    if poll_timer(timer, at, cx).is_pending() {
                        break;
                    }
                    deadline = silent();
                    if deadline.is_none() {
                        return Poll::Ready(Err(SendFailure::Silent));
                    }
                }
                Poll::Pending
            })
        })
        .await
    }

    /// Reads and writes what is possible, and polls what takes from it.
    pub(crate) fn poll_reader<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut reader: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { drive, turn, .. } = self;
        turn.poll(cx, |cx| {
            drive.poll(cx);
            reader(cx)
        })
    }

    /// Waits until a time.
    pub(crate) fn poll_until(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        poll_timer(&mut self.timer, at, cx)
    }

    /// Lets a task drive the connection, which then serves no other request.
    pub(crate) fn detach(&mut self, tasks: &Supervisor) {
        let Some(driver) = self.take_driver() else {
            return;
        };
        let dropped = CancellationToken::new();
        let is_dropped = dropped.clone();
        tasks.spawn_abortable("proxied request body", async move {
            tokio::select! {
                // The response's reader sees what went wrong.
                _ = driver => {}
                () = is_dropped.cancelled() => {}
            }
        });
        self.drive = Drive::Task(dropped.drop_guard());
    }

    /// Takes what drives the connection; `None` if it is closed or driven by a task.
    pub(crate) fn take_driver(&mut self) -> Option<Driver> {
        match std::mem::replace(&mut self.drive, Drive::Ended) {
            Drive::Inline(driver) => Some(driver),
            other => {
                self.drive = other;
                None
            }
        }
    }
}

impl Drive {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Self::Inline(driver) = self
            && driver.as_mut().poll(cx).is_ready()
        {
            // Errors reach the one who waits for the head, or reads the body.
            *self = Self::Ended;
        }
    }
}

fn poll_timer(timer: &mut Option<Pin<Box<Sleep>>>, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
    if timer.deadline() != at {
        timer.as_mut().reset(at);
    }
    timer.as_mut().poll(cx)
}

/// Why no response head came.
pub(crate) enum SendFailure {
    /// Nothing moved for too long.
    Silent,
    /// The connection broke. Has the request if nothing of it was sent.
    Broken(Box<TrySendError<Request<RequestBody>>>),
}
