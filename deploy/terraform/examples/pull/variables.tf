variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Region of all resources."
  type        = string
}

variable "image" {
  description = "The `wakeq` image for the API and the jobs."
  type        = string
}

variable "worker_image" {
  description = "Your image with the handlers."
  type        = string
}

variable "kubernetes_namespace" {
  description = "GKE: the namespace of deploy/kubernetes. The API and the workers then run there, and not on Cloud Run."
  type        = string
  default     = null
}

variable "operators" {
  description = "Members that operate the queue over HTTP: `user:…` and `group:…`."
  type        = set(string)
  default     = []
}

variable "publishers" {
  description = "Addresses of other service accounts that emit with the library, under keys of your choice."
  type        = map(string)
  default     = {}
}

variable "trusted_proxies" {
  description = "Address ranges of the proxies in front of the service whose X-Forwarded-For is trusted: Cloud Run's, and those of a load balancer if there is one."
  type        = list(string)
  default     = ["169.254.0.0/16"]
}

variable "urgent" {
  description = "Whether urgent notifications have a subscription of their own (docs/urgent.md)."
  type        = bool
  default     = false
}

variable "broadcast" {
  description = "Whether every emitted event is also broadcast to listeners."
  type        = bool
  default     = false
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the service and the worker pool. Apply false before you destroy or remove them."
  type        = bool
  default     = true
}

variable "database_deletion_protection" {
  description = "Whether Terraform and Google refuse to delete the database. Apply false before you destroy it."
  type        = bool
  default     = true
}
