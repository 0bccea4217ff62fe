# Unpack what lies under .gpu into the folder of packages. Sourced from the repository's root, once
# for each parcel that arrives; the last one leaves everything importable.
S=${SITE:-$HOME/site}
mkdir -p "$S"
if ls .gpu/p1/*.whl >/dev/null 2>&1; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$S" .gpu/p1/*.whl
fi
for parcel in .gpu/p[234]/*.tar.xz; do
  [ -f "$parcel" ] && tar -C "$S" -xJf "$parcel"
done
export PYTHONPATH="$S:$PWD/connector" VLLM_USE_FLASHINFER_SAMPLER=0
