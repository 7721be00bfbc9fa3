//! Which addresses are reached, and that none is reached that is not judged.

use fencepost::dispatch::Sink;
use fencepost_wire::sinks::webhook::{Egress, URL_BYTES_MAX, WebhookSettings};

use super::receiver::{OK, Receiver, Then, attempt, event, later, sink, sink_over};

fn closed() -> Egress {
    Egress::new(&[], false).unwrap()
}

fn allowing(rules: &[&str]) -> Egress {
    Egress::new(&rules.iter().map(|&rule| rule.to_owned()).collect::<Vec<_>>(), false).unwrap()
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_by_what_they_are() {
    let table: [(&str, &[&str]); 14] = [
        ("an unspecified", &["0.0.0.0", "0.255.255.255", "[::]"]),
        (
            "a private",
            &["10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "[fc00::1]", "[fdff::1]"],
        ),
        ("a carrier's", &["100.64.0.0", "100.127.255.255"]),
        ("a loopback", &["127.0.0.1", "127.255.255.254", "[::1]"]),
        ("a link-local", &["169.254.169.254", "[fe80::1]", "[febf::1]"]),
        ("a site-local", &["[fec0::1]", "[feff::1]"]),
        ("documentation", &["192.0.2.1", "198.51.100.1", "203.0.113.255", "[2001:db8::1]", "[3fff::1]"]),
        ("benchmarks", &["198.18.0.0", "198.19.255.255"]),
        ("a multicast", &["224.0.0.1", "239.255.255.255", "[ff02::1]"]),
        ("broadcast", &["255.255.255.255"]),
        ("a reserved", &["240.0.0.1", "255.255.255.254", "192.0.0.1", "[2001:2::1]", "[2001:10::1]", "[2001:20::1]"]),
        ("a cloud's", &["168.63.129.16"]),
        ("a relay", &["192.88.99.1"]),
        (
            "IPv4 address within IPv6",
            &[
                "[::ffff:8.8.8.8]",
                "[::ffff:127.0.0.1]",
                "[::8.8.8.8]",
                "[::127.0.0.1]",
                "[::ffff:0:7f00:1]",
                "[2002:7f00:1::]",
                "[2620::5efe:a00:1]",
                "[2620::200:5efe:808:808]",
                "[2002:808:808::1]",
                "[2001::1]",
                "[2001:0:808:808::]",
                "[64:ff9b::127.0.0.1]",
                "[64:ff9b::8.8.8.8]",
                "[64:ff9b:1::1]",
                "[64:ff9b:1:ffff:ffff:ffff:ffff:ffff]",
            ],
        ),
    ];
    for (nature, hosts) in table {
        for host in hosts {
            let refused = closed().check_url(&format!("https://{host}:8443/x")).await.unwrap_err();
            assert!(refused.contains(nature), "{host}: {refused}");
        }
    }
    for host in ["[100::1]", "[4000::1]", "[5f00::1]", "[1fff::1]"] {
        assert!(closed().check_url(&format!("https://{host}/")).await.unwrap_err().contains("not in use"), "{host}");
    }
}

#[tokio::test]
async fn public_addresses_pass_up_to_the_borders_of_what_is_not() {
    for host in [
        "8.8.8.8",
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "[2606:4700::1111]",
        "[2000::1]",
        "[2001:200::1]",
        "[2001:db7::1]",
        "[2003::1]",
        "[3ffe:ffff::1]",
        "[3fff:1000::1]",
    ] {
        assert_eq!(closed().check_url(&format!("http://{host}/")).await, Ok(()), "{host}");
    }
}

#[tokio::test]
async fn a_url_has_a_scheme_and_a_host_and_hides_nothing() {
    let table = [
        ("ftp://8.8.8.8/", "http:// or https://"),
        ("file:///etc/passwd", "read"),
        ("gopher://8.8.8.8:70/", "http:// or https://"),
        ("/relative", "http:// or https://"),
        ("8.8.8.8:80", "http:// or https://"),
        ("http://", "read"),
        ("http:///path", "read"),
        ("", "read"),
        ("http://user:pass@8.8.8.8/", "credentials"),
        ("http://8.8.8.8@127.0.0.1/", "credentials"),
        ("http://8.8.8.8/#part", "fragment"),
        ("http://8.8.8.8#@127.0.0.1/", "fragment"),
        ("http://8.8.8.8:0/", "port"),
        ("http://8.8.8.8:65536/", "port"),
        ("http://8.8.8.8:/", "port"),
        ("http://[fe80::1%25eth0]/", ""),
        ("http://[8.8.8.8]/", ""),
        ("http://127.0.0.1%2f.example.com/", ""),
        ("http://%31%32%37.0.0.1/", ""),
        ("http://8.8.8.8\\@127.0.0.1/", ""),
        ("http://a..b/", ""),
        ("http://8.8.8.8/ x", ""),
        ("http://8.8.8.8/\r\nHost: x", ""),
        ("http://bücher.example/", ""),
    ];
    for (url, words) in table {
        let refused = closed().check_url(url).await.unwrap_err();
        assert!(refused.contains(words), "{url}: {refused}");
        assert!(sink_over(closed(), &WebhookSettings::default()).deliver(event(url)).await.is_err(), "{url}");
    }
    let long = format!("http://8.8.8.8/{}", "x".repeat(URL_BYTES_MAX));
    assert!(closed().check_url(&long).await.unwrap_err().contains("longer"));
}

#[tokio::test]
async fn other_spellings_of_loopback_are_refused_at_registration_and_at_connect() {
    let receiver = Receiver::start(OK, Then::Listen).await;
    let sink = sink_over(closed(), &WebhookSettings::default());
    for host in [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "0",
        "0x0",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
    ] {
        let url = format!("http://{host}:{}/", receiver.port);
        let refused = closed().check_url(&url).await.unwrap_err();
        assert!(refused.contains("not on the public internet"), "{host}: {refused}");
        let (status, note, _) = later(attempt(&sink, &url).await);
        assert!(status.is_none() && note.contains("not on the public internet"), "{host}: {note}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn loopback_is_reached_where_it_is_allowed_and_nothing_else_with_it() {
    let receiver = Receiver::start(OK, Then::Listen).await;
    let sink = sink(&WebhookSettings::default());
    for host in ["127.0.0.1", "localhost", "2130706433"] {
        assert_eq!(attempt(&sink, &format!("http://{host}:{}/", receiver.port)).await, Ok(()), "{host}");
    }
    let egress = Egress::new(&[], true).unwrap();
    for host in ["10.0.0.1", "169.254.169.254", "0.0.0.0", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[fe80::1]"] {
        assert!(egress.check_url(&format!("http://{host}/")).await.is_err(), "{host}");
    }
}

#[tokio::test]
async fn nets_addresses_and_hosts_can_be_allowed() {
    let egress = allowing(&["10.1.0.0/16", "192.168.7.7", "fd00:1::/32", "64:ff9b::/96"]);
    for host in ["10.1.0.0", "10.1.255.255", "192.168.7.7", "[fd00:1::5]", "[64:ff9b::8.8.8.8]"] {
        assert_eq!(egress.check_url(&format!("http://{host}/")).await, Ok(()), "{host}");
    }
    for host in ["10.0.255.255", "10.2.0.0", "192.168.7.8", "[fd00:2::5]", "[::ffff:10.1.0.1]", "127.0.0.1"] {
        assert!(egress.check_url(&format!("http://{host}/")).await.is_err(), "{host}");
    }
    assert_eq!(allowing(&["0.0.0.0/0"]).check_url("http://10.0.0.1/").await, Ok(()));

    let receiver = Receiver::start(OK, Then::Listen).await;
    let sink = sink_over(allowing(&["LocalHost."]), &WebhookSettings::default());
    assert_eq!(attempt(&sink, &format!("http://localhost:{}/", receiver.port)).await, Ok(()));
    assert_eq!(attempt(&sink, &format!("http://LOCALHOST:{}/", receiver.port)).await, Ok(()));
    later(attempt(&sink, &format!("http://127.0.0.1:{}/", receiver.port)).await);
    assert_eq!(receiver.heard().len(), 2);
}

#[tokio::test]
async fn an_allowance_may_be_limited_to_a_scheme_and_a_port() {
    let receiver = Receiver::start(OK, Then::Listen).await;
    let (port, other) = (receiver.port, Receiver::start(OK, Then::Listen).await);
    for (rule, refused) in [
        (format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{}/", other.port)),
        (format!("http://127.0.0.1:{port}"), format!("https://127.0.0.1:{port}/")),
        (format!("localhost:{port}"), format!("http://localhost:{}/", other.port)),
        (format!("http://localhost:{port}"), format!("https://localhost:{port}/")),
        (format!("127.0.0.0/8:{port}"), format!("http://127.0.0.1:{}/", other.port)),
    ] {
        let host = if rule.contains("localhost") { "localhost" } else { "127.0.0.1" };
        let (url, egress) = (format!("http://{host}:{port}/"), allowing(&[&rule]));
        let (heard, sink) = (receiver.heard().len(), sink_over(egress.clone(), &WebhookSettings::default()));
        assert_eq!(egress.check_url(&url).await, Ok(()), "{rule}");
        assert_eq!(attempt(&sink, &url).await, Ok(()), "{rule}");
        assert_eq!(receiver.heard().len(), heard + 1);
        // Judged when it is registered, and again before every connection.
        assert!(egress.check_url(&refused).await.unwrap_err().contains("not allowed here"), "{rule} {refused}");
        let (_, note, _) = later(attempt(&sink, &refused).await);
        assert!(note.contains("not allowed here"), "{rule} {refused}: {note}");
    }
    assert_eq!(other.connections(), 0);
}

#[test]
fn a_text_that_is_no_rule_is_refused() {
    for wrong in [
        "",
        "10.0.0.0/33",
        "fd00::/129",
        "10.0.0.1/8",
        "10.0.0",
        "1234",
        "*.example.com",
        "a b",
        "ftp://x",
        "http://x/y",
        "x:0",
        "x/8",
        "10.0.0.0/-1",
    ] {
        assert!(Egress::new(&[wrong.to_owned()], false).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_may_be_registered() {
    assert_eq!(closed().check_url("https://not-yet.invalid/hooks").await, Ok(()));
}

#[test]
fn routes_to_one_host_and_port_share_a_bound() {
    let sink = sink(&WebhookSettings::default());
    let host = |url: &str| sink.host(&event(url).transport);
    assert_eq!(host("https://Example.com/a"), "example.com:443");
    assert_eq!(host("https://example.com.:443/b?c"), "example.com:443");
    assert_eq!(host("http://example.com/"), "example.com:80");
    assert_eq!(host("http://[::1]:81/"), "[::1]:81");
    assert_eq!(host("nonsense"), "nonsense");
}
