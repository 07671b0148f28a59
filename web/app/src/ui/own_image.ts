/**
 * Decides which images are fetched without asking: images of a chat on this server, and images in data addresses. Pure.
 *
 * Any other address could carry text out of a chat, and other paths of this server are not images; some are endless
 * streams.
 */

export const OWN_IMAGE = /^(?:data:image\/(?:png|jpe?g|webp|gif);base64,|\/v1\/chats\/[\w-]{1,128}\/blobs\/[0-9a-f]{1,64}$)/i;
