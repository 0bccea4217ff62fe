# Sourced from the repository's root: unpacks the parcels that lie under .gpu, each once, into one
# folder of packages. After the last parcel the engines can be started.
S=${SITE:-$HOME/site}
mkdir -p "$S"
if ls .gpu/p1/*.whl >/dev/null 2>&1 && [ ! -e "$S/.p1" ]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
    --target "$S" .gpu/p1/*.whl && touch "$S/.p1"
fi
for parcel in .gpu/p[234]/*.tar.xz; do
  mark="$S/.$(basename "$parcel")"
  [ -f "$parcel" ] && [ ! -e "$mark" ] && tar -C "$S" -xJf "$parcel" && touch "$mark"
done
export PYTHONPATH="$S:${CONNECTOR:-$PWD/connector}" VLLM_USE_FLASHINFER_SAMPLER=0
