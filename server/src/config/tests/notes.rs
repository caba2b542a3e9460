use super::read;

#[test]
fn ports_that_can_get_the_consoles_cookie_cause_a_warning() {
    let warns = |text: &str| {
        let notes = read(text).unwrap().config.notes();
        notes.iter().any(|note| note.contains("cookie"))
    };
    let docker = "[runtime]\ntype = 'docker'\n";
    let bridge = format!("{docker}[docker]\nnetwork_mode = 'bridge'\npublish_host = ");
    assert!(warns(docker), "the contract's defaults");
    assert!(warns(&format!("{bridge}'10.0.0.1'")));
    assert!(warns(&format!(
        "{docker}[docker]\npublish_host = '127.0.0.1'"
    )));
    assert!(!warns(&format!("{bridge}'127.0.0.1'")));
    assert!(!warns(&format!(
        "{docker}[server]\neip = 'https://e.example'"
    )));
    assert!(!warns("[runtime]\ntype = 'sim'"));
}

#[test]
fn endpoints_on_an_unpublished_ipv6_address_cause_a_warning() {
    let warns = |host: &str, more: &str| {
        let text = format!(
            "[server]\nhost = '{host}'\n{more}\n[runtime]\ntype = 'docker'\n\
             [docker]\nnetwork_mode = 'bridge'"
        );
        let notes = read(&text).unwrap().config.notes();
        notes.iter().any(|note| note.contains("IPv6"))
    };
    assert!(warns("::1", "") && warns("2001:db8::1", "eip = ' '"));
    assert!(!warns("::", ""), "endpoints get an IPv4 address then");
    assert!(!warns("127.0.0.1", "") && !warns("box.example", ""));
    assert!(!warns("::1", "eip = 'box.example'"));
    let host_network = "[server]\nhost = '::1'\n[runtime]\ntype = 'docker'";
    let notes = read(host_network).unwrap().config.notes();
    assert!(!notes.iter().any(|note| note.contains("IPv6")), "{notes:?}");
}

#[test]
fn a_proxy_in_front_that_is_not_named_is_noticed() {
    let notes = |more: &str| {
        let text = format!("[server]\neip = 'https://e.example'\n{more}\n[runtime]\ntype = 'sim'");
        read(&text).unwrap().config.notes().len()
    };
    assert_eq!(notes(""), 1);
    assert_eq!(notes("trusted_proxies = ['127.0.0.1', 'fd00::/8']"), 0);
    assert_eq!(notes("tls = { certificate = 'c', key = 'k' }"), 0);
}

#[test]
fn what_a_secure_runtime_makes_useless_is_noticed() {
    let notes = |more: &str| {
        let text = format!(
            "[server]\neip = 'https://e.example'\ntrusted_proxies = ['127.0.0.1']\n\
             [runtime]\ntype = 'docker'\n{more}"
        );
        read(&text).unwrap().config.notes()
    };
    let secure = "[secure_runtime]\ntype = 'kata'\ndocker_runtime = 'kata'\n";
    let egress = "[egress]\nimage = 'e'\n";
    let bridge = "[docker]\nnetwork_mode = 'bridge'\n";
    assert_eq!(notes(egress), [""; 0]);
    assert_eq!(notes(&format!("{secure}{bridge}")), [""; 0]);
    let [sidecar] = notes(&format!("{secure}{egress}{bridge}"))[..] else {
        panic!("one note");
    };
    assert!(sidecar.contains("egress.image"), "{sidecar}");
    let [network] = notes(secure)[..] else {
        panic!("one note");
    };
    assert!(network.contains("docker.network_mode"), "{network}");
}
