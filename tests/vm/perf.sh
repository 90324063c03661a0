#!/bin/sh
# In an emulated machine: what `hyperframes perf rdma://...` says of a device that Linux emulates, and
# what it does where little memory may be locked.
fail() {
  echo "FAILED: $*"
  exit 1
}

measure() { # NAME: as whom it is run, from /tmp
  echo "---- $1"
  cat /tmp/text
  [ "$(cat /tmp/status)" = 0 ] || fail "$1: status $(cat /tmp/status)"
  tr -d ' \n' </tmp/perf.json >/tmp/rows
  grep -q '"partial":false' /tmp/rows || fail "$1: not all was measured"
}
perf='./hyperframes perf rdma://127.0.0.1:0 --no_self_loop --seconds 2 --sizes 64,64KiB
  --json /tmp/perf.json >/tmp/text 2>&1; echo $? >/tmp/status'

sh -c "$(echo $perf)"
measure 'with a device'
grep -q '"transport":"soft-rdma"' /tmp/rows || fail 'the rows do not say that the device is emulated'
grep -q '"transport":"tcp"' /tmp/rows && fail 'some of it was measured over TCP'
grep -q 'soft-rdma.*emulated by Linux' /tmp/text || fail 'the table does not say it'

# Root may lock what he likes.
rm -f /tmp/perf.json /tmp/text /tmp/status
chmod 1777 /tmp
echo 'ada:x:1000:1000::/:/bin/sh' >/etc/passwd
ulimit -l 64
su ada -c "cd /job; ulimit -l; $(echo $perf)"
measure 'where 64 KiB may be locked'
grep -q '"transport":"tcp"' /tmp/rows || fail 'it was not measured over TCP'
grep -q '"transport":"soft-rdma"' /tmp/rows && fail 'memory was locked'
grep -q 'the limit of locked memory is 64 KiB' /tmp/text || fail 'nothing says why'
echo 'emulation is labelled, and a limit goes to TCP'
