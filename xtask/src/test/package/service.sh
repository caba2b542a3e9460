# Runs in a container, as root: the Debian package on a system that systemd runs. A stand-in for
# systemctl records what it is asked. /packages has the package as first.deb, and its successor.

# Images for containers refuse to start services.
rm -f /usr/sbin/policy-rc.d
mkdir -p /run/systemd/system
cat >/usr/local/bin/systemctl <<'END'
#!/bin/sh
echo "$*" >>/systemctl.log
case "$*" in *is-enabled*) echo enabled ;; esac
END
chmod 755 /usr/local/bin/systemctl

asked() {
    if ! grep -Eq "(^| )$1 opensandbox-server.service\$" /systemctl.log; then
        echo "systemctl was not asked to $1, but:" >&2
        cat /systemctl.log >&2
        exit 1
    fi
    : >/systemctl.log
}

dpkg --install /packages/first.deb
asked start
test "$(stat -c '%a %U' /etc/opensandbox/server.env)" = "600 root"
test "$(stat -c '%a %U' /etc/opensandbox/config.toml)" = "640 root"
test "$(readlink -f /usr/bin/opensandbox-server)" = /usr/lib/opensandbox/opensandbox-server

dpkg --install /packages/next.deb
asked restart

# As the service makes them.
mkdir -p /var/lib/opensandbox /var/log/opensandbox
touch /var/lib/opensandbox/opensandbox.db
dpkg --remove opensandbox-server
asked stop
test -e /etc/opensandbox/server.env
test -e /var/lib/opensandbox/opensandbox.db

dpkg --purge opensandbox-server
for left in /etc/opensandbox /var/lib/opensandbox /var/log/opensandbox; do
    test ! -e "$left"
done
