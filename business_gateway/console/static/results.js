// The committed files of an order, with downloads.
import { html, useState } from "./html.js";
import { get } from "./api.js";
import { bytes, t } from "./i18n.js";
import { useResource } from "./resource.js";
import { Card, Id, Shown } from "./ui.js";

const PICTURES = ["image/bmp", "image/gif", "image/jpeg", "image/png", "image/tiff", "image/webp"];
const PICTURE_BYTES_MAX = 32 * 1024 * 1024;
const ORDER = { archive: 0, manifest: 2, image: 1 };

export function Results({ order }) {
  const path = `/api/v1/orders/${order.order_id}/artifacts`;
  const load = async () => {
    let [artifacts, cursor] = [[], ""];
    do {
      const page = await get(path, { cursor, page_size: 200 });
      artifacts = artifacts.concat(page.artifacts);
      cursor = page.next_cursor;
    } while (cursor && artifacts.length < 1000);
    return artifacts
      .filter((one) => one.execution_id === order.execution_id || !order.execution_id)
      .sort((a, b) => (ORDER[a.type] ?? 3) - (ORDER[b.type] ?? 3) || a.relative_path.localeCompare(b.relative_path));
  };
  const resource = useResource(load, [order.order_id, order.version]);
  const count = resource.data?.length;
  return html`<${Card} id="results" title=${t("results.title")} lead=${count ? String(count) : ""}>
    <${Shown} resource=${resource} rows=${2} isEmpty=${(data) => !data.length} empty=${html`<p class="lead">${t("results.none")}</p>`}>
      ${(data) => html`<ul class="tiles">${data.map((one) => html`<${Tile} key=${one.artifact_id} path=${path} artifact=${one} />`)}</ul>`}
    </${Shown}>
  </${Card}>`;
}

function Tile({ path, artifact }) {
  const [broken, setBroken] = useState(false);
  const name = artifact.relative_path.split("/").at(-1);
  const isImage = PICTURES.includes(artifact.media_type) && artifact.size_bytes <= PICTURE_BYTES_MAX;
  const extension = name.includes(".") ? name.split(".").at(-1).toUpperCase().slice(0, 4) : "";
  const url = `${path}/${artifact.artifact_id}`;
  return html`<li class="tile">
    <div class="tile-picture">
      ${isImage && !broken
        ? html`<img src=${`${url}/thumbnail`} alt="" loading="lazy" onError=${() => setBroken(true)} />`
        : html`<span class="file-icon" aria-hidden="true">${extension}</span>`}
    </div>
    <div class="tile-text">
      <a href=${`${url}/download`} download=${name} title=${artifact.relative_path} class="tile-name">${name}</a>
      <span class="sub">${artifact.step_key} · ${bytes(artifact.size_bytes)}</span>
      <${Id} label="sha256" value=${artifact.sha256} />
    </div>
  </li>`;
}
